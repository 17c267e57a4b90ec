#include "tools/plan_viz/page.h"

namespace sluice::plan_viz {

const char kPageStyle[] = R"css(
:root{color-scheme:light dark;--bg:#f6f7f9;--panel:#fff;--ink:#1b2430;--dim:#667080;--line:#dde1e8;--accent:#2563eb;--soft:#e8eefc;--lane:#eef1f5;--hit:#fff3c4;--good:#15803d;--bad:#b91c1c}
@media(prefers-color-scheme:dark){:root:not([data-theme=light]){--bg:#0f141b;--panel:#171e28;--ink:#e3e8ef;--dim:#8b96a6;--line:#2a3442;--accent:#7aa7ff;--soft:#1f2c44;--lane:#131a23;--hit:#4a3d10;--good:#4ade80;--bad:#f87171}}
:root[data-theme=dark]{color-scheme:dark;--bg:#0f141b;--panel:#171e28;--ink:#e3e8ef;--dim:#8b96a6;--line:#2a3442;--accent:#7aa7ff;--soft:#1f2c44;--lane:#131a23;--hit:#4a3d10;--good:#4ade80;--bad:#f87171}
:root[data-theme=light]{color-scheme:light}
*{box-sizing:border-box}
body{margin:0;height:100vh;display:grid;grid-template-rows:auto minmax(140px,var(--lanes-height,46vh)) 1fr;grid-template-columns:1fr 400px;grid-template-areas:"head head" "lanes side" "tables side";background:var(--bg);color:var(--ink);font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;gap:10px;padding:0 12px 12px}
header{grid-area:head;display:flex;align-items:center;gap:8px 14px;padding:10px 0 0;flex-wrap:wrap}
h1{font-size:17px;margin:0;font-weight:650}
.chip{background:var(--panel);border:1px solid var(--line);border-radius:999px;padding:2px 10px;color:var(--dim);white-space:nowrap}
.chip b{color:var(--ink);font-weight:600}
.good b{color:var(--good)}.bad b{color:var(--bad)}
#search{margin-left:auto;width:240px;padding:6px 12px;border:1px solid var(--line);border-radius:8px;background:var(--panel);color:inherit;font:inherit}
#search:focus{outline:2px solid var(--accent);outline-offset:-1px}
button{font:inherit;color:inherit;background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:5px 11px;cursor:pointer}
button:hover{border-color:var(--accent)}
.card{background:var(--panel);border:1px solid var(--line);border-radius:12px;overflow:hidden;min-width:0;min-height:0}
#lanes{grid-area:lanes;position:relative;overflow-y:auto}
#lanes canvas{display:block;cursor:grab}
#lanes canvas.drag{cursor:grabbing}
#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--bg);padding:4px 9px;border-radius:7px;font-size:12px;max-width:420px;display:none;z-index:5;white-space:pre-line}
#tables{grid-area:tables;display:flex;flex-direction:column}
nav{display:flex;gap:2px;padding:6px 8px 0;border-bottom:1px solid var(--line);flex:none}
nav button{border:0;background:none;border-radius:8px 8px 0 0;padding:6px 12px;color:var(--dim)}
nav button.on{color:var(--accent);box-shadow:inset 0 -2px var(--accent);font-weight:600}
nav i{font-style:normal;color:var(--dim);font-weight:400;margin-left:5px}
#rows{overflow:auto;flex:1}
table{border-collapse:collapse;width:100%}
th{position:sticky;top:0;background:var(--panel);text-align:left;font-weight:600;color:var(--dim);padding:6px 12px;border-bottom:1px solid var(--line);white-space:nowrap}
td{padding:4px 12px;border-bottom:1px solid var(--line);white-space:nowrap;max-width:420px;overflow:hidden;text-overflow:ellipsis}
td.r,th.r{text-align:right;font-variant-numeric:tabular-nums}
tbody tr{cursor:pointer}
tbody tr:hover{background:var(--soft)}
tr.on{background:var(--soft);box-shadow:inset 3px 0 var(--accent)}
.more{padding:8px 14px;color:var(--dim)}
pre.proof{margin:0;padding:14px;white-space:pre-wrap;font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,monospace}
aside{grid-area:side;padding:14px 16px;overflow:auto!important}
aside h2{font-size:15px;margin:0 0 2px;overflow-wrap:anywhere}
aside .kind{color:var(--dim);margin-bottom:10px}
aside h3{font-size:11px;text-transform:uppercase;letter-spacing:.06em;color:var(--dim);margin:16px 0 5px;font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 14px;margin:0}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
.item{padding:2px 0;overflow-wrap:anywhere}
a{color:var(--accent);text-decoration:none;cursor:pointer}a:hover{text-decoration:underline}
.mono,.item.mono{font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,monospace}
.src{border:1px solid var(--line);border-radius:8px;overflow:auto;background:var(--bg);padding:6px 0;font:12px/1.6 ui-monospace,SFMono-Regular,Menlo,monospace}
.src div{display:flex;white-space:pre;padding:0 10px}
.src div.at{background:var(--hit);font-weight:600}
.src span{width:3.2em;flex:none;color:var(--dim);user-select:none}
.sw{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:7px;vertical-align:-1px}
@media(max-width:900px){body{grid-template-columns:1fr;grid-template-rows:auto 40vh auto auto;grid-template-areas:"head" "lanes" "side" "tables";height:auto}}
)css";

const char kPageBody[] = R"html(<body>
<header>
<h1 id="title"></h1><span id="chips" style="display:contents"></span>
<input id="search" type="search" placeholder="Search kernels, actors, registers" aria-label="Search">
<button id="fit" title="Show all (double click on the lanes)">Fit</button>
<button id="theme" title="Light or dark">Theme</button>
</header>
<section id="lanes" class="card"><canvas id="canvas" aria-label="Lanes of streams over virtual time"></canvas></section>
<section id="tables" class="card"><nav id="tabs"></nav><div id="rows"></div></section>
<aside id="details" class="card"></aside>
<div id="tip"></div>
)html";

}  // namespace sluice::plan_viz
