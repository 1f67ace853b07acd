// What the book adds to its theme for readers who point, who use keys, and who listen. Without scripts all pages still
// read: pictures stand still, and say what they show in their captions and alt texts.

// A figure with an overlay of spots (provlab.plots.explore) answers: point at a spot, tap it, or step through by the slider.
function explore(figure) {
  const spots = [...figure.querySelectorAll(".provlab-spots path")];
  const texts = spots.map((spot) => spot.dataset.says ?? spot.querySelector("title").textContent);
  const corners = spots.map((spot) => spot.getAttribute("d").match(/-?[\d.]+/g).slice(0, 2).map(Number));
  spots.forEach((spot) => spot.replaceChildren()); // what the browser would show of itself, late and small

  const panel = document.createElement("div");
  panel.className = "provlab-readout";
  panel.innerHTML =
    '<input type="range" min="0" value="0" aria-label="Step through the picture"/>' +
    "<output></output>";
  const [slider, readout] = panel.children;
  readout.textContent = matchMedia("(max-width: 640px), (pointer: coarse)").matches
    ? "Tap the picture to enlarge it, then tap a place to read it; or move the slider."
    : "Point at the picture, or move the slider (arrow keys).";
  slider.max = spots.length - 1;
  figure.querySelector("label").after(panel);

  // a heatmap of all pairs has labels too small for a phone: there the rows are named below
  const pairs = texts.map((text) => text.match(/^(\S+) and (\S+): /));
  const names = pairs.every(Boolean) ? [...new Set(pairs.flatMap(([, row, column]) => [column, row]))] : [];
  if (names.length > 1 && pairs.length === (names.length * (names.length - 1)) / 2) {
    const rows = document.createElement("p");
    rows.className = "provlab-rows";
    rows.textContent = `Rows from above, columns from the left: ${names.join(", ")}.`;
    panel.append(rows);
  }

  let shown = -1;
  function show(at) {
    spots[shown]?.classList.remove("here");
    shown = at;
    spots[at].classList.add("here");
    slider.value = at;
    readout.textContent = texts[at];
    slider.setAttribute("aria-valuetext", texts[at]);
  }
  slider.addEventListener("input", () => show(Number(slider.value)));
  slider.addEventListener("focus", () => show(Number(slider.value)));
  // up and down go to the nearest spot of the same column, where there is one
  slider.addEventListener("keydown", (event) => {
    const way = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!way) return;
    const [x, y] = corners[Math.max(shown, 0)];
    const next = corners
      .map(([left, top], at) => [way * (top - y), Math.abs(left - x), at])
      .filter(([down, aside]) => down > 0.5 && aside < 1)
      .sort((one, other) => one[0] - other[0])[0];
    event.preventDefault();
    if (next) show(next[2]);
  });
  const overlay = figure.querySelector(".provlab-spots");
  overlay.addEventListener("pointerover", (event) => {
    const at = spots.indexOf(event.target);
    if (at >= 0) show(at);
  });
  // on a phone a tap enlarges the picture; once it is large, a tap on a spot only reads it
  overlay.addEventListener("click", (event) => {
    const box = figure.querySelector("label > input");
    if (spots.includes(event.target) && (box.checked || !matchMedia("(max-width: 640px)").matches)) event.preventDefault();
  });
}

// Show the beginning of something, and all of it when the reader presses this button, or a printer asks.
function clipped(element, words) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "provlab-all";
  button.textContent = words;
  const all = () => {
    element.classList.remove("clipped");
    button.remove();
  };
  element.classList.add("clipped");
  button.addEventListener("click", all);
  addEventListener("beforeprint", all);
  return [button, all];
}

// A table that goes on beyond a narrow screen says so: scroll bars of phones are seen only while one scrolls.
function hinted() {
  document.querySelectorAll(".provlab-swipe").forEach((hint) => hint.remove());
  if (!matchMedia("screen and (max-width: 640px)").matches) return;
  const boxes = new Set();
  document.querySelectorAll("main table").forEach((table) => {
    let box = table;
    while (box && !/auto|scroll/.test(getComputedStyle(box).overflowX)) box = box.parentElement;
    if (box && box !== document.documentElement && box !== document.body && table.offsetParent) boxes.add(box);
  });
  boxes.forEach((box) => {
    if (box.scrollWidth <= box.clientWidth + 8) return;
    const hint = document.createElement("p");
    hint.className = "provlab-swipe";
    hint.textContent = "The table goes on to the right: swipe it.";
    box.before(hint);
  });
}
document.addEventListener("toggle", hinted, true);

// A picture much taller than wide shows its beginning.
function clip(figure) {
  const image = figure.querySelector("label img"), label = figure.querySelector("label");
  if (!image || image.naturalHeight < 1.5 * image.naturalWidth) return;
  const [button, all] = clipped(label, "Show the whole picture");
  label.after(button);
  figure.querySelector(".provlab-readout input")?.addEventListener("input", all);
}

// A question with choices, a task list in a box: the reader picks one, and its words after the colon answer. Without
// scripts all choices stand there with their answers.
function ask(box) {
  const reply = document.createElement("p");
  reply.setAttribute("role", "status");
  const choices = [...box.querySelectorAll("li.task-list-item")].map((item) => {
    const right = item.querySelector("input").checked;
    const text = item.textContent.trim();
    const cut = text.indexOf(": ");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text.slice(0, cut);
    button.addEventListener("click", () => {
      choices.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      reply.textContent = `${right ? "Right" : "Not so"}. ${text.slice(cut + 2)}`;
      box.classList.toggle("answered", right);
    });
    button.setAttribute("aria-pressed", "false");
    return button;
  });
  const row = document.createElement("div");
  row.className = "choices";
  row.append(...choices);
  box.querySelector("ul").replaceWith(row, reply);
}

// What the theme and the notebooks' pages leave undone for keys and for screen readers.
function mend() {
  // a button is called what is written on it
  document.querySelectorAll('summary[aria-label="Toggle hidden content"]').forEach((one) => one.removeAttribute("aria-label"));
  document.querySelectorAll(".search-button-field").forEach((one) => one.removeAttribute("aria-label"));
  // entries of the bibliography are no list items, and their old role is no more
  document.querySelectorAll(".citation-list, .citation").forEach((one) => one.removeAttribute("role"));
  // the left column is a part of the page, logo and all
  const column = document.querySelector(".bd-sidebar-primary");
  column?.setAttribute("role", "complementary");
  column?.setAttribute("aria-label", "The book");
}

// Nodes that stand beside each other fold under words, or under their heading, until a link into them or a printer asks.
function folded(kind, words, nodes) {
  const inside = document.createElement("details");
  inside.className = kind;
  const summary = document.createElement("summary");
  summary.append(words);
  nodes[0].before(inside);
  inside.append(summary, ...nodes);
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && inside.contains(target)) {
      inside.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => (inside.open = true));
  open();
  return inside;
}

const titled = (section) => section.querySelector(":scope > :is(h2, h3)")?.firstChild.textContent.trim();

// Below "For the record" stands what a first reading does without.
function fold(record) {
  const parts = [...record.children].slice(2); // behind the heading and its first sentence
  let section = record.nextElementSibling;
  while (section && !["exercises", "summary", "references"].includes(section.id)) {
    parts.push(section);
    section = section.nextElementSibling;
  }
  if (!parts.length) return;
  const titles = parts.map(titled).filter(Boolean).join(" · ");
  record.append(folded("provlab-record", titles || "More", parts));
}

// What stands above it is read first, so it is kept short: what a reader brings along folds, and so do sections within
// sections; code shows its first lines.
function core(record) {
  const page = record.parentElement;
  const parameters = page.querySelector(":scope > section#parameters");
  if (parameters) {
    const before = [...page.children].slice(0, [...page.children].indexOf(parameters));
    const first = before.findIndex((child) => child.matches("p") && /^What you will learn/.test(child.textContent));
    const claimed = before.findIndex((child) => child.matches("p") && /^What the paper claims/.test(child.textContent));
    const aims = claimed > first ? "Aims, needs, the paper's claim, parameters and set-up" : "Aims, needs, parameters and set-up";
    const words = first < 0 ? "Parameters and set-up" : aims;
    folded("provlab-record", words, [...(first < 0 ? [] : before.slice(first)), parameters]);
  }
  page.querySelectorAll(":scope > section > section").forEach((section) => {
    const heading = section.querySelector(":scope > h3");
    if (!heading || !(section.compareDocumentPosition(record) & Node.DOCUMENT_POSITION_FOLLOWING)) return;
    const nodes = [...section.children].filter((child) => child !== heading);
    if (!nodes.length) return;
    heading.querySelector(".headerlink")?.remove();
    folded("provlab-record", heading, nodes);
  });
  document.querySelectorAll("div.cell_input pre").forEach((code) => {
    const lines = code.textContent.trimEnd().split("\n").length;
    if (lines <= 7 || code.closest("details:not(.provlab-record)") || record.contains(code)) return;
    if (!(code.compareDocumentPosition(record) & Node.DOCUMENT_POSITION_FOLLOWING)) return;
    code.closest("div.cell_input").append(clipped(code, `Show all ${lines} lines`)[0]);
  });
}

// A long table of a notebook folds, if its caption says what it holds; else it shows its first rows. A printer opens it.
function foldTable(table) {
  const rows = table.tBodies[0].rows.length;
  if (!table.caption) {
    table.after(clipped(table, `Show all ${rows} rows`)[0]);
    return;
  }
  const inside = document.createElement("details");
  inside.className = "provlab-long";
  const words = document.createElement("summary");
  words.textContent = `${table.caption.textContent.trim()} (${rows} rows)`;
  table.replaceWith(inside);
  table.deleteCaption();
  inside.append(words, table);
  addEventListener("beforeprint", () => (inside.open = true));
}

// TeX cut behind what `ends` matches, outside of braces and with at most `within` round brackets open.
function cut(whole, ends, within) {
  const parts = [""];
  let depth = 0, round = 0;
  for (let at = 0; at < whole.length; ) {
    const rest = whole.slice(at);
    const found = depth === 0 && round <= within && parts.at(-1).trim() && ends.exec(rest);
    const end = found && !/^\s*[_^]/.test(rest.slice(found[0].length)) ? found : null; // an index stays with its sum
    const token = end ? end[0] : /^\\([a-zA-Z]+|.)|^[^]/.exec(rest)[0];
    if (token === "{" || token === "\\left" || token === "\\begin") depth += 1;
    if (token === "}" || token === "\\right" || token === "\\end") depth -= 1;
    round += { "(": 1, "[": 1, ")": -1, "]": -1 }[token] ?? 0;
    at += token.length;
    if (!end || at >= whole.length) parts[parts.length - 1] += token;
    else {
      parts[parts.length - 1] += token + (token === "," ? "" : "{}");
      parts.push("");
    }
  }
  return parts;
}

// MathJax sets an inline formula in one piece, and on a phone its end, the result, would be cut. So a long one is given
// to it in pieces: they end behind a relation, a long piece behind a sign or a comma too, and a line may break there.
function pieces(tex) {
  const relations = /^(=|<|>|\\(approx|le|leq|ge|geq|to|in|sim|equiv|propto|mapsto|Rightarrow|ll|gg)(?![a-zA-Z]))/;
  const signs = /^(,|\+|-|\/|\\(times|cdot|pm|mid|quad|qquad|dots|ldots|log|min|max|sum)(?![a-zA-Z]))/;
  // rough: what TeX writes as a word is a letter or two on paper
  const long = (text, most) => text.replace(/\\(text|mathrm|mathbb|mathcal|left|right|tfrac|frac)/g, "").replace(/\\[a-zA-Z]+/g, "x").length > most;
  if (!long(tex, 14)) return [tex];
  return cut(tex, relations, 0).flatMap((piece) => (long(piece, 24) ? cut(piece, signs, 1) : [piece]));
}

// A bracket before a formula, and a comma or a full stop behind it, stay on its line.
function breakable() {
  document.querySelectorAll("span.math").forEach((formula) => {
    const tex = /^\\\(([^]*)\\\)$/.exec(formula.textContent.trim());
    if (!tex) return;
    const [before, after] = [formula.previousSibling, formula.nextSibling];
    const opens = before?.nodeType === Node.TEXT_NODE ? /[([]*$/.exec(before.data)[0] : "";
    const closes = after?.nodeType === Node.TEXT_NODE ? /^[,.;:?!)\]]*/.exec(after.data)[0] : "";
    const parts = pieces(tex[1]);
    if (parts.length < 2 && !opens && !closes) return;
    if (opens) before.data = before.data.slice(0, -opens.length);
    if (closes) after.data = after.data.slice(closes.length);
    formula.classList.add("provlab-pieces");
    formula.replaceChildren();
    parts.forEach((part, at) => {
      const piece = document.createElement("span");
      const [first, last] = [at === 0, at === parts.length - 1];
      piece.textContent = `${first ? opens : ""}\\(${part}\\)${last ? closes : ""}`;
      formula.append(piece, last ? "" : "\u200b"); // a space of no width, where a line may end
    });
  });
}

// On a phone the statements of a displayed formula, which stand apart on a line, stand one below the other.
function stacked() {
  if (!matchMedia("(max-width: 640px)").matches) return;
  document.querySelectorAll("div.math").forEach((formula) => {
    const tex = /^\\\[([^]*)\\\]$/.exec(formula.textContent.trim());
    if (!tex) return;
    const inside = tex[1].trim().replace(/^\\begin\{split\}([^]*)\\end\{split\}$/, "$1").trim(); // Sphinx's, where it sees a \\
    if (cut(inside, /^(\\\\|&)/, 9).length > 1) return; // has lines of its own
    const rows = cut(inside, /^\\q?quad(?![a-zA-Z])/, 0).map((row) => row.replace(/\\q?quad(\{\})?$/, ""));
    if (rows.length < 2) return;
    formula.textContent = `\\[\\begin{gathered}${rows.join("\\\\[0.4em]")}\\end{gathered}\\]`;
  });
}

// before MathJax looks for formulas
if (window.MathJax && !window.MathJax.version) {
  window.MathJax.startup = {
    pageReady() {
      breakable();
      stacked();
      return window.MathJax.startup.defaultPageReady().then(reachable);
    },
  };
}

// A displayed formula that is wider than the screen is set smaller, as far as it can be read; what is wider still scrolls.
function fitting() {
  document.querySelectorAll('mjx-container[display="true"]').forEach((formula) => {
    formula.style.fontSize = "";
    const wide = () => formula.scrollWidth > formula.clientWidth || formula.parentElement.scrollWidth > formula.parentElement.clientWidth;
    for (let size = 96; size >= 68 && wide(); size -= 4) formula.style.fontSize = `${size}%`;
  });
}

// What scrolls in its own box can be reached by keys; the theme sees to code and outputs, not to the rest.
function reachable() {
  fitting();
  document.querySelectorAll(".pst-scrollable-table-container, div.math, .provlab-figure label").forEach((box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
}

// The search asks for each word, and sorts pages of one score by their titles. Words that only ask say nothing of a page;
// chapters come before pages of the course, and those before lists.
function searching() {
  if (!window.Scorer) return; // of Sphinx, on its search page alone
  stopwords.push("can", "do", "does", "how", "i", "many", "much", "my", "what", "when", "where", "which", "why");
  const lists = /^(references|genindex|course\/(exercises|guide|monday)|experiments\/status)$/;
  Scorer.score = ([page, , , , score]) => score - (lists.test(page) ? 0.8 : page.startsWith("course/") ? 0.4 : 0);
}

addEventListener("beforeprint", () => document.querySelectorAll("figcaption details").forEach((one) => (one.open = true)));
addEventListener("load", () => document.querySelectorAll("figure.provlab-figure").forEach(clip)); // sizes are known then
document.addEventListener("DOMContentLoaded", () => {
  mend();
  searching();
  document.querySelectorAll("figure.provlab-figure:has(.provlab-spots)").forEach(explore);
  document.querySelectorAll(".provlab-question").forEach(ask);
  const record = document.querySelector("section#for-the-record");
  document.querySelectorAll(".cell_output table:not(.provlab-scoreboard, .provlab-lab table)").forEach((table) => {
    const first = record && table.compareDocumentPosition(record) & Node.DOCUMENT_POSITION_FOLLOWING;
    if (table.tBodies[0]?.rows.length > (first ? 8 : 15)) foldTable(table);
  });
  if (record) {
    core(record);
    fold(record);
  }
  reachable();
  new ResizeObserver(reachable).observe(document.body);
  hinted();
  matchMedia("screen and (max-width: 640px)").addEventListener("change", hinted);
});
