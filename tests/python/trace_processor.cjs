// node trace_processor.cjs FOLDER TRACE < QUERIES: what Perfetto's own trace processor answers. FOLDER has its WebAssembly
// and what drives it in the viewer; QUERIES is a list of SQL in JSON. Prints for each its rows, as lists, in JSON.
const fs = require('fs'), path = require('path'), vm = require('vm'), { MessageChannel } = require('worker_threads');
const [folder, trace] = process.argv.slice(2), queries = JSON.parse(fs.readFileSync(0, 'utf8'));

// The engine takes this for a worker of a browser.
const node = process;
Object.assign(globalThis, { self: globalThis, location: { href: 'http://localhost/engine_bundle.js' }, WorkerGlobalScope: class {}, importScripts() {}, process: undefined });
globalThis.XMLHttpRequest = class {
  open(_, url) { this.name = url.split('/').pop().replace('_memory64', ''); }
  send() { const bytes = fs.readFileSync(path.join(folder, this.name)); this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length); }
};
const Compiled = WebAssembly.Module;
WebAssembly.Module = function (bytes) { if (bytes[8] === 5 && bytes[11] === 4) throw new Error('no memory of 64 bits here'); return new Compiled(bytes); };
vm.runInThisContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'));

const varint = n => { const out = []; for (n = BigInt(n); ; n >>= 7n) { const low = Number(n & 127n); if (n < 128n) { out.push(low); return Buffer.from(out); } out.push(low | 128); } };
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field << 3 | 2), varint(value.length), value]);
function read(buffer, at) { let value = 0n; for (let shift = 0n; ; shift += 7n) { const b = buffer[at++]; value |= BigInt(b & 127) << shift; if (b < 128) return [value, at]; } }
function fields(buffer) {
  const found = [];
  for (let at = 0; at < buffer.length;) {
    let key, value;
    [key, at] = read(buffer, at);
    const kind = Number(key & 7n);
    if (kind === 0) [value, at] = read(buffer, at);
    else if (kind === 2) { let size; [size, at] = read(buffer, at); value = buffer.subarray(at, at += Number(size)); }
    else { const size = kind === 1 ? 8 : 4; value = buffer.subarray(at, at += size); }
    found.push([Number(key >> 3n), value]);
  }
  return found;
}
const APPEND = 1, FINISH = 2, QUERY = 3;
let sequence = 0;
const call = (method, ...rest) => new Uint8Array(bytes(1, Buffer.concat([number(1, ++sequence), number(2, method), ...rest])));

function rowsOf(batches, columns) {
  const cells = [];
  for (const batch of batches) {
    const parts = new Map();
    for (const [field, value] of fields(batch)) if (Buffer.isBuffer(value)) parts.set(field, value);
    const kinds = parts.get(1) ?? [], integers = parts.get(2), floats = parts.get(3), texts = parts.has(5) ? parts.get(5).toString().split('\0') : [];
    let i = 0, f = 0, t = 0;
    for (const kind of kinds) {
      if (kind === 2) { let value; [value, i] = read(integers, i); cells.push(Number(BigInt.asIntN(64, value))); }
      else if (kind === 3) { cells.push(floats.readDoubleLE(f)); f += 8; }
      else cells.push(kind === 4 ? texts[t++] : null);
    }
  }
  const rows = [];
  for (let i = 0; i < cells.length; i += columns) rows.push(cells.slice(i, i + columns));
  return rows;
}

const channel = new MessageChannel(), answers = [];
let columns = 0, batches = [];
function fail(text) { node.stderr.write(text + '\n'); node.exit(1); }
function ask() {
  if (answers.length === queries.length) { node.stdout.write(JSON.stringify(answers), () => node.exit(0)); return; }
  columns = 0;
  batches = [];
  channel.port1.postMessage(call(QUERY, bytes(103, bytes(1, Buffer.from(queries[answers.length])))));
}
channel.port1.on('message', data => {
  for (const [, message] of fields(Buffer.from(data))) {
    const parts = fields(message);
    for (const [field, value] of parts) {
      if (field === 201) for (const [f, v] of fields(value)) if (f === 1) fail('append: ' + v);
      if (field !== 203) continue;
      for (const [f, v] of fields(value)) {
        if (f === 1) ++columns;
        if (f === 2) fail(queries[answers.length] + ': ' + v);
        if (f === 3) batches.push(v);
      }
      if (!batches.length || !fields(batches[batches.length - 1]).some(([f, v]) => f === 6 && v === 1n)) continue;
      answers.push(rowsOf(batches, columns));
      ask();
    }
  }
});
self.onmessage({ data: channel.port2 });
setTimeout(() => {  // the engine compiles itself first
  channel.port1.postMessage(call(APPEND, bytes(101, fs.readFileSync(trace))));
  channel.port1.postMessage(call(FINISH));
  ask();
}, 100);
