// The map of ranks: a canvas for each mesh, a square for each rank. No library, nothing from the network.

const COLOURS = {
  fine: "#2e7d32", slow: "#b26a00", degraded: "#b26a00", stuck: "#c62828", // verdicts; the others are states of ranks
  idle: "#9e9e9e", runs: "#2e7d32", polls: "#66a869", waits: "#1565c0", collective: "#5e9bd6", stands: "#b26a00",
  "holds the GIL": "#8d6e00", frozen: "#6a1b9a", "does not answer": "#c62828", debugged: "#00838f", absent: "#e08e0b",
  "silent host": "#4e342e", ended: "#d0d0d0", failed: "#c62828", starts: "#b39ddb", silent: "#4e342e",
};
const OTHER = "#000";
const MOST_CELL = 18, LEAST_CELL = 3;
const WIDTH = 640, HEIGHT = 640;
const BEAT = 10_000; // milliseconds

export function layout(count, shape) {
  // The last dimension is a row, or several side by side where there are too many rows; else as square as it gets.
  const sizes = Object.values(shape);
  const last = sizes.length > 1 ? sizes[sizes.length - 1] : 0;
  const laid = (columns) => {
    const cell = Math.max(LEAST_CELL, Math.min(MOST_CELL, Math.floor(WIDTH / columns)));
    return { columns, rows: Math.ceil(count / columns), cell };
  };
  for (let columns = last; last >= 2 && columns * LEAST_CELL <= WIDTH; columns += last) {
    const found = laid(columns);
    if (found.rows * found.cell <= HEIGHT) return found;
  }
  return laid(Math.max(1, Math.min(count, Math.ceil(Math.sqrt(count * 2)))));
}

export function point(rank, shape) {
  const found = [];
  let rest = rank;
  for (const [label, size] of Object.entries(shape).reverse()) {
    found.unshift(`${label}=${rest % size}`);
    rest = Math.floor(rest / size);
  }
  return found.join(", ");
}

function element(tag, text, parent) {
  const made = document.createElement(tag);
  made.textContent = text; // never as HTML: names and reasons are anybody's
  parent.append(made);
  return made;
}

function drawMesh(model, mesh, states, parent, say) {
  const { columns, rows, cell } = layout(mesh.ranks.length, mesh.shape);
  const counts = {};
  const blamed = new Set(mesh.blamed);
  const stateOf = (rank) => states[mesh.ranks.charCodeAt(rank) - 97] ?? "starts";
  for (let rank = 0; rank < mesh.ranks.length; rank++) counts[stateOf(rank)] = (counts[stateOf(rank)] ?? 0) + 1;
  const summary = Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ");
  element("div", `${mesh.name}: ${mesh.ranks.length} ranks, ${summary}`, parent);
  const canvas = element("canvas", "", parent);
  canvas.width = columns * cell;
  canvas.height = rows * cell;
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${mesh.name}: ${summary}`);
  const context = canvas.getContext("2d");
  const [selectedMesh, selectedRank] = model.get("selected");
  for (let rank = 0; rank < mesh.ranks.length; rank++) {
    const x = (rank % columns) * cell, y = Math.floor(rank / columns) * cell;
    context.fillStyle = COLOURS[stateOf(rank)] ?? OTHER;
    context.fillRect(x, y, cell - 1, cell - 1);
    const isSelected = selectedMesh === mesh.name && selectedRank === rank;
    if (blamed.has(rank) || isSelected) {
      context.strokeStyle = isSelected ? "#000" : "#ffeb3b";
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, cell - 3, cell - 3);
    }
  }
  const rankAt = (event) => {
    const scale = canvas.width / canvas.clientWidth; // a narrow page shrinks it
    const column = Math.floor((event.offsetX * scale) / cell), row = Math.floor((event.offsetY * scale) / cell);
    const rank = row * columns + column;
    return rank < mesh.ranks.length && column < columns ? rank : undefined;
  };
  const select = (rank) => {
    model.set("selected", [mesh.name, rank]);
    model.save_changes();
  };
  const tell = (rank) => say(rank === undefined ? "" : `${mesh.name} rank ${rank} (${point(rank, mesh.shape)}): ${stateOf(rank)}`);
  canvas.onmousemove = (event) => tell(rankAt(event));
  canvas.onclick = (event) => rankAt(event) !== undefined && select(rankAt(event));
  canvas.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const [name, from] = model.get("selected");
    const rank = name === mesh.name ? from + step : 0;
    if (rank >= 0 && rank < mesh.ranks.length) select(rank);
  };
}

function render({ model, el }) {
  const box = element("div", "", el);
  box.style.font = "13px system-ui, sans-serif";
  const draw = () => {
    const focused = [...box.querySelectorAll("canvas")].indexOf(box.getRootNode().activeElement);
    box.replaceChildren();
    const sentence = element("div", model.get("sentence"), box);
    sentence.setAttribute("role", "status");
    sentence.style.cssText = `border-left: 4px solid ${COLOURS[model.get("status")] ?? "#2e7d32"}; padding-left: 8px; font-weight: 600`;
    if (model.get("error")) element("div", `no new picture: ${model.get("error")}`, box);
    const told = document.createElement("div");
    told.setAttribute("aria-live", "polite");
    told.style.minHeight = "1.3em";
    const [name, rank] = model.get("selected");
    for (const mesh of model.get("meshes")) {
      drawMesh(model, mesh, model.get("states"), box, (text) => (told.textContent = text));
      if (mesh.name === name && rank < mesh.ranks.length) {
        const state = model.get("states")[mesh.ranks.charCodeAt(rank) - 97] ?? "starts";
        told.textContent = `${name} rank ${rank} (${point(rank, mesh.shape)}): ${state}`;
      }
    }
    box.append(told);
    for (const text of model.get("failures")) element("div", text, box);
    if (focused >= 0) box.querySelectorAll("canvas")[focused]?.focus();
  };
  const traits = ["sentence", "status", "states", "meshes", "failures", "error", "selected"];
  let waiting = false; // one drawing for traits that change together
  const soon = () => {
    if (waiting) return;
    waiting = true;
    queueMicrotask(() => {
      waiting = false;
      draw();
    });
  };
  for (const trait of traits) model.on(`change:${trait}`, soon);
  draw();
  const beat = () => {
    model.set("beat", Date.now()); // a view is open
    model.save_changes();
  };
  beat();
  const beating = setInterval(beat, BEAT);
  return () => {
    clearInterval(beating);
    for (const trait of traits) model.off(`change:${trait}`, soon);
  };
}

export default { render };
