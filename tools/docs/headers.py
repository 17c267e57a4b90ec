"""The reference of C++ and C: the public headers as pages. Their comments are the contracts."""

import re

LEFT_OUT = ("sluice.hpp", "export.h", "standard.h")  # of includes, and of macros
TITLES = {"sluice.h": "The C API", "sluice_eager.h": "Tensors in C", "sluice_server.h": "The server's C API"}
ORDER = ["engine.h", "session.h", "plan.h", "tensor.h", "dtype.h", "error.h", "trace.h", "diagnostics.h", "nested.h", "eager.h",
         "compile.h", "extension.h", "caf.hpp", "serving.hpp"]


def items(text):
    """The declarations of a header at the level of its namespace, each with the comment above it: (comment, code)."""
    result, comment, code, depth = [], [], [], 0
    for line in text.splitlines():
        bare = re.sub(r'//.*|"(\\.|[^"])*"', "", line)
        if not code and not line.strip():
            if comment:
                result.append(("\n".join(comment), ""))
            comment = []
            continue
        if not code and line.lstrip().startswith("//"):
            comment.append(line.strip())
            continue
        if not code and re.match(r"#|namespace |}  // namespace|}$", line):
            if comment:
                result.append(("\n".join(comment), ""))
            comment = []
            if line.startswith("#define") and line.endswith("\\"):
                depth = -1  # until the macro ends
            continue
        if depth < 0:
            depth = -1 if line.endswith("\\") else 0
            continue
        code.append(line)
        depth += bare.count("{") + bare.count("(") - bare.count("}") - bare.count(")")
        if depth == 0 and re.search(r"[;}]\s*(//.*)?$", line):
            result.append(("\n".join(comment), "\n".join(code)))
            comment, code = [], []
    return result


def plain(comment):
    """A comment as Markdown: lines of code in it, which are indented, stay code."""
    lines = [re.sub(r"^// ?", "", line) for line in comment.splitlines()]
    out, block = [], []
    for line in [*lines, ""]:
        if line.startswith("  ") and line.strip():
            block.append(line)
            continue
        if block:
            out += ["```cpp", *(b[2:] for b in block), "```"]
            block = []
        parts = re.split(r"(\b[a-zA-Z_:]+\(\))", line)  # odd ones are calls
        out.append("".join(f"`{p}`" if i % 2 else re.sub(r"([*_<>\[\]|])", r"\\\1", p) for i, p in enumerate(parts)))
    return "\n".join(out).strip()


def public(code):
    """A declaration without what is private in it."""
    code = re.sub(r"\n*\n private:\n.*?(?=\n (?:public|protected):|\n\};)", "", code, flags=re.S)
    return re.sub(r"\bSLUICE_API ", "", code)


def name_of(code):
    match = re.search(r"(?:class|struct|enum class)\s+(?:SLUICE_API\s+)?(\w+)[^;]*\{", code)
    return match and match[1]


def cpp_page(name, text):
    text = re.sub(r"^#pragma once\n", "", text)
    head = re.match(r"((?://.*\n)+)", text)
    out = [f"# {name}", "", f"```cpp\n#include <sluice/{name}>\n```", ""]
    if head:
        out += [plain(head[1]), ""]
        text = text[head.end():]
    functions = False
    for comment, code in items(text):
        if not code:
            continue
        title = name_of(code)
        if re.match(r"(class|struct) \w+;$", code) or code.startswith("template <>") or code.startswith("friend"):
            continue
        if title:
            out += [f"## {title}", ""]
        elif not functions:
            out += ["## Functions", ""]
        functions = not title
        out += [plain(comment), "", f"```cpp\n{public(code)}\n```", ""]
    return "\n".join(out) + "\n"


def c_page(name, text):
    """A header of C: its sections begin with a comment of the form "--- title: more"."""
    head = re.search(r"/\* (.*?)\*/", text, re.S)[1]
    head = "\n".join(re.sub(r"^ \* ?", "", line) for line in head.splitlines())
    paragraphs = re.sub(r"(?m)^(Statuses|Handles|Threads|End|Compatibility):", r"\n**\1.**", head)
    code = "\n".join(line[2:] for line in paragraphs.splitlines() if line.startswith("  "))
    prose = "\n".join(line for line in paragraphs.splitlines() if not line.startswith("  "))
    out = [f"# {TITLES.get(name, name)}", "", f"```c\n#include <sluice/{name}>\n```", "", prose.replace("_INIT", "`_INIT`"), "", f"```c\n{code}\n```", ""]
    body = text.split('extern "C" {\n#endif')[1].split("#ifdef __cplusplus\n}")[0]
    sections = re.split(r"/\* --- ", body)
    out += ["## Types", "", f"```c\n{re.sub(r'SLUICE_API ', '', sections[0]).strip()}\n```", ""]
    for section in sections[1:]:
        title, _, rest = section.partition("*/")
        title = " ".join(re.sub(r"^ \* ?", "", line) for line in title.strip().splitlines())
        mark = ": " if ": " in title[:60] else ", " if ", " in title[:40] else ". "
        short, _, more = title.partition(mark)
        out += [f"## {short[0].upper()}{short[1:]}", ""]
        out += [f"{more[0].upper()}{more[1:].rstrip('.')}.".replace("_", "\\_"), ""] if more else []
        out += [f"```c\n{re.sub(r'SLUICE_API ', '', rest).strip()}\n```", ""]
    return "\n".join(out) + "\n"


def pages(folder):
    texts = {p.name: p.read_text() for p in folder.iterdir() if p.suffix in (".h", ".hpp") and p.name not in LEFT_OUT}
    of_c = sorted(name for name, text in texts.items() if text.startswith("#ifndef"))
    order = [n for n in ORDER if n in texts] + sorted(set(texts) - set(ORDER) - set(of_c))
    result = {f"reference/cpp/{name.replace('.', '_')}.md": cpp_page(name, texts[name]) for name in order}
    result |= {f"reference/cpp/{name.replace('.', '_')}.md": c_page(name, texts[name]) for name in of_c}
    entries = "\n".join(name.replace(".", "_") for name in [*order, *of_c])
    result["reference/cpp/index.md"] = f"""# C++ and C

The public headers, with their contracts. `#include <sluice/sluice.hpp>` brings what a service needs. Names are in the namespace
`sluice::api`. [embedding.md](../../embedding.md) teaches how to use them.

```{{toctree}}
:maxdepth: 2

{entries}
```
"""
    return result
