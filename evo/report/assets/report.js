"use strict";
(() => {
  // Data of the run. Texts of candidates only ever become text nodes, never markup.
  const data = JSON.parse(document.getElementById("data").textContent);
  const nodes = data.nodes;
  const byN = new Map(nodes.map((node) => [node.n, node]));
  const at = (id) => document.getElementById(id);
  const element = (name, text, attributes) => {
    const made = document.createElement(name);
    if (text !== undefined && text !== null) made.textContent = String(text);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    return made;
  };
  for (const node of nodes) node.children = [];
  for (const node of nodes) for (const parent of node.parents) if (byN.has(parent)) byN.get(parent).children.push(node.n);

  // Compressed parts are unpacked when somebody asks for them.
  const unpacked = new Map();
  const unpack = (index) => {
    if (!unpacked.has(index)) {
      const bytes = Uint8Array.from(atob(at("chunk-" + index).textContent), (sign) => sign.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      unpacked.set(index, new Response(stream).json());
    }
    return unpacked.get(index);
  };
  const detailOf = async (n) => (await unpack(data.details[Math.floor(byN.get(n).index / data.detailsPerChunk)]))[n];
  const sourceOf = async (index) => (await unpack(data.sources[index]))[index];

  // Colours: cividis, which the colour-blind read as others do.
  const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"]
    .map((hex) => [1, 3, 5].map((start) => parseInt(hex.slice(start, start + 2), 16)));
  const speeds = nodes.map((node) => node.speedup).filter((value) => value !== null);
  const high = Math.max(...speeds, 1e-9);
  const low = Math.max(Math.min(...speeds, high), high / 4);
  const colour = (speedup) => {
    const share = high > low ? Math.min(1, Math.max(0, Math.log(speedup / low) / Math.log(high / low))) : 1;
    const place = share * (CIVIDIS.length - 1);
    const start = Math.min(Math.floor(place), CIVIDIS.length - 2);
    const mixed = CIVIDIS[start].map((value, index) => Math.round(value + (place - start) * (CIVIDIS[start + 1][index] - value)));
    return `rgb(${mixed})`;
  };

  const table = at("candidates");
  const rows = Array.from(table.tBodies[0].rows);
  const numberOf = (row) => Number(row.id.slice("candidate-".length));

  // What is selected and what matches.
  let selected = null;
  let matching = new Set(byN.keys());
  const line = (n) => {
    const found = new Set();
    for (let node = byN.get(n); node && !found.has(node.n); node = byN.get(node.parents[0])) found.add(node.n);
    return found;
  };
  const relatives = (n) => {
    const found = line(n);
    const open = [n];
    while (open.length) for (const child of byN.get(open.pop()).children) if (!found.has(child)) { found.add(child); open.push(child); }
    return found;
  };
  const ancestors = (n) => {
    const found = new Set([n]);
    const open = [n];
    while (open.length) for (const parent of byN.get(open.pop()).parents) if (byN.has(parent) && !found.has(parent)) { found.add(parent); open.push(parent); }
    return found;
  };
  const match = () => {
    const words = at("words").value.toLowerCase().split(/\s+/).filter(Boolean);
    const operator = at("operator").value;
    const verdict = at("verdict").value;
    const near = at("only-line").checked && selected !== null ? new Set([...relatives(selected), ...ancestors(selected)]) : null;
    matching = new Set();
    for (const node of nodes) {
      const text = `#${node.n} ${node.operator} ${node.model || ""} ${node.verdict} ${node.reason}`.toLowerCase();
      if ((!operator || node.operator === operator) && (!verdict || node.verdict === verdict) && (!near || near.has(node.n))
        && words.every((word) => (/^#\d+$/.test(word) ? word === "#" + node.n : text.includes(word)))) matching.add(node.n);
    }
    at("matches").textContent = `${matching.size} of ${nodes.length} candidates`;
    for (const row of rows) if (row.hidden === matching.has(numberOf(row))) row.hidden = !row.hidden;
    draw();
  };

  // The drawing.
  const canvas = at("tree");
  const paint = canvas.getContext("2d");
  const generations = Math.max(...nodes.map((node) => node.generation), 1);
  const tallest = Math.max(...nodes.map((node) => node.height), 1);
  const view = { x: 0, y: 0, zoom: 1 };
  let width = 1, height = 1;
  const placeX = (node) => view.x + view.zoom * (30 + (node.generation / generations) * (width - 60));
  const placeY = (node) => view.y + view.zoom * (20 + (node.height / tallest) * (height - 40));
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let queued = false;
  const draw = () => { if (!queued) { queued = true; requestAnimationFrame(paintAll); } };
  const paintAll = () => {
    queued = false;
    const scale = window.devicePixelRatio || 1;
    width = canvas.clientWidth; height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * scale)) { canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale); }
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    paint.clearRect(0, 0, width, height);
    const thick = selected === null ? line(data.best) : line(selected);
    const ink = style("--soft"), strong = style("--bad");
    paint.lineWidth = 0.6; paint.strokeStyle = ink; paint.globalAlpha = 0.45;
    paint.beginPath();
    for (const node of nodes) {
      const parent = byN.get(node.parents[0]);
      if (parent && matching.has(node.n)) { paint.moveTo(placeX(parent), placeY(parent)); paint.lineTo(placeX(node), placeY(node)); }
    }
    paint.stroke();
    paint.globalAlpha = 1; paint.lineWidth = 2.5; paint.strokeStyle = strong;
    paint.beginPath();
    for (const n of thick) {
      const node = byN.get(n), parent = node && byN.get(node.parents[0]);
      if (parent) { paint.moveTo(placeX(parent), placeY(parent)); paint.lineTo(placeX(node), placeY(node)); }
    }
    paint.stroke();
    const radius = Math.min(6, (nodes.length > 1000 ? 2 : 3.5) * Math.sqrt(view.zoom));
    for (const node of nodes) {
      const x = placeX(node), y = placeY(node);
      if (x < -9 || y < -9 || x > width + 9 || y > height + 9) continue;
      paint.globalAlpha = matching.has(node.n) ? 1 : 0.1;
      if (node.speedup === null) {
        paint.strokeStyle = ink; paint.lineWidth = 1;
        paint.beginPath(); paint.moveTo(x - 2.5, y - 2.5); paint.lineTo(x + 2.5, y + 2.5); paint.moveTo(x - 2.5, y + 2.5); paint.lineTo(x + 2.5, y - 2.5); paint.stroke();
      } else {
        paint.fillStyle = colour(node.speedup);
        paint.beginPath(); paint.arc(x, y, radius, 0, 7); paint.fill();
        if (radius > 3) { paint.strokeStyle = ink; paint.lineWidth = 0.5; paint.stroke(); }
      }
    }
    paint.globalAlpha = 1;
    const best = byN.get(data.best);
    if (best) star(placeX(best), placeY(best), 8, strong);
    const now = byN.get(selected);
    if (now) { paint.strokeStyle = style("--accent"); paint.lineWidth = 2.5; paint.beginPath(); paint.arc(placeX(now), placeY(now), 10, 0, 7); paint.stroke(); }
  };
  const star = (x, y, size, fill) => {
    paint.beginPath();
    for (let point = 0; point < 10; point += 1) {
      const angle = -Math.PI / 2 + (point * Math.PI) / 5, reach = point % 2 ? size * 0.45 : size;
      paint.lineTo(x + reach * Math.cos(angle), y + reach * Math.sin(angle));
    }
    paint.closePath(); paint.fillStyle = fill; paint.fill(); paint.strokeStyle = style("--card"); paint.lineWidth = 1; paint.stroke();
  };
  const nearest = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let found = null, least = 12 ** 2;
    for (const node of nodes) {
      if (!matching.has(node.n)) continue;
      const distance = (placeX(node) - x) ** 2 + (placeY(node) - y) ** 2;
      if (distance < least) { least = distance; found = node; }
    }
    return found;
  };
  const zoom = (factor, x = width / 2, y = height / 2) => {
    const next = Math.min(200, Math.max(0.5, view.zoom * factor)), change = next / view.zoom;
    view.x = x - change * (x - view.x); view.y = y - change * (y - view.y); view.zoom = next;
    draw();
  };
  const fit = () => { Object.assign(view, { x: 0, y: 0, zoom: 1 }); draw(); };
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY); }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, y: event.clientY, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      if (Math.abs(event.clientX - drag.x) + Math.abs(event.clientY - drag.y) > 3) drag.moved = true;
      if (drag.moved) { view.x += event.clientX - drag.x; view.y += event.clientY - drag.y; drag.x = event.clientX; drag.y = event.clientY; draw(); }
      return;
    }
    const node = nearest(event), tip = at("tip");
    tip.hidden = !node;
    if (node) {
      tip.textContent = `#${node.n} ${node.operator}: ${speed(node)}`;
      tip.style.left = Math.min(event.offsetX + 14, width - 160) + "px"; tip.style.top = event.offsetY + 10 + "px";
    }
  });
  canvas.addEventListener("pointerup", (event) => { if (drag && !drag.moved) { const node = nearest(event); if (node) select(node.n); } drag = null; });
  canvas.addEventListener("pointerleave", () => { at("tip").hidden = true; });
  canvas.addEventListener("keydown", (event) => {
    const node = byN.get(selected) || byN.get(data.best) || nodes[0];
    const siblings = byN.has(node.parents[0]) ? byN.get(node.parents[0]).children : nodes.filter((one) => !one.parents.length).map((one) => one.n);
    const place = siblings.indexOf(node.n);
    const moves = { ArrowLeft: node.parents[0], ArrowRight: node.children[0], ArrowUp: siblings[place - 1], ArrowDown: siblings[place + 1] };
    if (event.key in moves) { event.preventDefault(); if (byN.has(moves[event.key])) select(moves[event.key]); else if (selected === null) select(node.n); }
    if (event.key === "+") zoom(1.4);
    if (event.key === "-") zoom(1 / 1.4);
  });

  // Details of one candidate.
  const speed = (node) => (node.speedup === null ? node.verdict : node.speedup.toFixed(2) + "× baseline");
  const link = (n) => {
    const button = element("button", "#" + n, { type: "button", class: "plain" });
    button.addEventListener("click", () => select(n));
    return byN.has(n) ? button : element("span", "#" + n);
  };
  const listed = (pairs) => {
    const list = element("dl");
    for (const [name, value] of pairs) {
      if (value === null || value === undefined || value === "" || value.length === 0) continue;
      list.append(element("dt", name));
      const cell = element("dd");
      cell.append(...(Array.isArray(value) ? value : [document.createTextNode(String(value))]));
      list.append(cell);
    }
    return list;
  };
  const tableOf = (header, body) => {
    const table = element("table"), head = element("tr");
    for (const name of header) head.append(element("th", name, { scope: "col" }));
    table.append(element("thead"), element("tbody"));
    table.tHead.append(head);
    for (const cells of body) { const row = element("tr"); for (const cell of cells) row.append(element("td", cell)); table.tBodies[0].append(row); }
    const box = element("div", null, { class: "scroll wide", tabindex: "0", role: "region", "aria-label": header[0] });
    box.append(table);
    return box;
  };
  const show = async (n) => {
    const node = byN.get(n), detail = await detailOf(n), box = at("detail");
    if (selected !== n) return;
    const others = node.parents.flatMap((parent) => [link(parent), document.createTextNode(" ")]);
    const children = node.children.slice(0, 30).flatMap((child) => [link(child), document.createTextNode(" ")]);
    const params = Object.entries(detail.params || {}).map(([name, value]) => `${name} = ${value}`).join(", ");
    box.replaceChildren(
      element("h3", `#${n} ${node.operator}: ${speed(node)}`, { class: "wide" }),
      listed([["reason", node.reason], ["verdict", detail.verdict], ["confirmed", detail.confirmed], ["generation", node.generation],
        ["island", detail.island], ["model", node.model], ["parents", others], ["children", children], ["verdict of", detail.reused === null ? null : [link(detail.reused)]]]),
      listed([["params", params], ["registers", detail.registers], ["shared memory", detail.shared], ["spilled", detail.spilled],
        ["occupancy", detail.occupancy], ["compile", detail.compile], ["evaluate", detail.evaluate]]),
    );
    if (detail.times.length) box.append(tableOf(["shape", "time", "speedup", "of floor", "TFLOP/s", "GB/s", "limiter"], detail.times));
    if (detail.findings.length) box.append(tableOf(["finding", "gate", "line", "message", "suggestion"], detail.findings));
    if (node.source !== null) await showSource(box, node);
  };
  const showSource = async (box, node) => {
    const text = await sourceOf(node.source), parent = byN.get(node.parents[0]);
    if (parent && parent.source !== null) {
      const fold = element("details", null, { class: "wide", open: "" });
      const same = parent.source === node.source;
      fold.append(element("summary", same ? `The same source as #${parent.n}; only params differ` : `Changed since #${parent.n}`));
      if (!same) fold.append(diffBlock(await sourceOf(parent.source), text));
      if (selected === node.n) box.append(fold);
    }
    const fold = element("details", null, { class: "wide" }), block = element("pre", null, { tabindex: "0" });
    block.append(element("code", text));
    fold.append(element("summary", `Source of #${node.n} (${text.split("\n").length} lines)`), block);
    if (selected === node.n) box.append(fold);
  };

  // Difference of two texts by lines: longest common subsequence between the equal head and tail.
  const diff = (old, now) => {
    let head = 0, tail = 0;
    while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
    while (tail < old.length - head && tail < now.length - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail += 1;
    const a = old.slice(head, old.length - tail), b = now.slice(head, now.length - tail);
    const out = old.slice(0, head).map((text) => [" ", text]);
    if (a.length * b.length > 4e6) out.push(...a.map((text) => ["-", text]), ...b.map((text) => ["+", text]));
    else {
      const best = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
      for (let i = a.length - 1; i >= 0; i -= 1) for (let j = b.length - 1; j >= 0; j -= 1) best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
      let i = 0, j = 0;
      while (i < a.length || j < b.length) {
        if (i < a.length && j < b.length && a[i] === b[j]) { out.push([" ", a[i]]); i += 1; j += 1; }
        else if (j >= b.length || (i < a.length && best[i + 1][j] >= best[i][j + 1])) { out.push(["-", a[i]]); i += 1; }
        else { out.push(["+", b[j]]); j += 1; }
      }
    }
    return out.concat(old.slice(old.length - tail).map((text) => [" ", text]));
  };
  const diffBlock = (old, now) => {
    const lines = diff(old.split("\n"), now.split("\n")), block = element("pre", null, { tabindex: "0" });
    const near = lines.map((_, index) => lines.slice(Math.max(0, index - 3), index + 4).some(([sign]) => sign !== " "));
    lines.forEach(([sign, text], index) => {
      if (near[index]) block.append(element("span", `${sign} ${text}${sign === " " ? "\n" : ""}`, sign === " " ? {} : { class: sign === "+" ? "added" : "removed" }));
      else if (index === 0 || near[index - 1]) block.append(element("span", "…", { class: "place" }));
    });
    return block;
  };

  const select = (n) => {
    selected = n;
    for (const row of table.tBodies[0].querySelectorAll(".picked")) row.classList.remove("picked");
    at("candidate-" + n).classList.add("picked");
    if (at("only-line").checked) match();
    history.replaceState(null, "", "#candidate-" + n);
    draw();
    show(n);
  };

  // The table: its numbers select, its heads sort (what is empty stays below).
  table.tBodies[0].addEventListener("click", (event) => {
    const anchor = event.target.closest("a");
    if (!anchor) return;
    event.preventDefault();
    select(numberOf(anchor.closest("tr")));
  });
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    const button = element("button", head.textContent, { type: "button" });
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => { const text = row.cells[column].textContent, number = parseFloat(text.replace(/^#/, "")); return Number.isNaN(number) ? text : number; };
      const order = rows.map((row) => [key(row), row]).sort(([a], [b]) => {
        if (a === "" || b === "") return (a === "") - (b === "");
        const first = typeof a === typeof b ? a < b : typeof a === "number";
        return a === b ? 0 : first === down ? 1 : -1;
      });
      table.tBodies[0].append(...order.map(([, row]) => row));
    });
  });

  for (const [id, key] of [["operator", "operator"], ["verdict", "verdict"]]) {
    for (const value of [...new Set(nodes.map((node) => node[key]))].sort()) at(id).append(element("option", value, { value }));
    at(id).addEventListener("change", match);
  }
  at("words").addEventListener("input", match);
  at("only-line").addEventListener("change", match);
  at("fit").addEventListener("click", fit);
  at("nearer").addEventListener("click", () => zoom(1.5));
  at("farther").addEventListener("click", () => zoom(1 / 1.5));
  const bar = at("scale").getContext("2d");
  for (let x = 0; x < 160; x += 1) { bar.fillStyle = colour(low * (high / low) ** (x / 159)); bar.fillRect(x, 0, 1, 10); }
  at("scale-low").textContent = speeds.length ? "≤ " + low.toFixed(2) : "";
  at("scale-high").textContent = speeds.length ? high.toFixed(2) : "";
  at("explorer").hidden = false;
  at("needs-script").hidden = true;
  new ResizeObserver(draw).observe(canvas);
  match();
  const wanted = /^#candidate-(\d+)$/.exec(location.hash);
  if (wanted && byN.has(Number(wanted[1]))) select(Number(wanted[1]));

  // A page that `evo watch --serve` shows comes again when the archive has changed.
  if (data.live) {
    const check = async () => {
      const answer = await fetch("/stamp").catch(() => null);
      if (answer && answer.ok && (await answer.text()) !== data.live) location.reload();
      else setTimeout(check, 2000);
    };
    setTimeout(check, 2000);
  }
})();
