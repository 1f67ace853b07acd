// The front page's argument: two decks of cards, one of which can be shuffled, and how rare so good an agreement is.
// Everything is computed here; p is counted over all orders of the cards.
(() => {
  "use strict";
  const CARDS = 8;
  const SVG = "http://www.w3.org/2000/svg";

  /** How many of the n! orders have each sum of squared differences of places: an array of counts. */
  function orders(n) {
    const counts = [];
    const used = Array(n).fill(false);
    const place = (card, sum) => {
      if (card === n) { counts[sum] = (counts[sum] ?? 0) + 1; return; }
      for (let at = 0; at < n; at++) {
        if (used[at]) continue;
        used[at] = true;
        place(card + 1, sum + (card - at) ** 2);
        used[at] = false;
      }
    };
    place(0, 0);
    return counts;
  }

  /** Spearman's rho of an order with the order of the first deck, and p: how many orders agree at least as well. */
  function judged(order, counts) {
    const n = order.length, distance = order.reduce((sum, at, card) => sum + (at - card) ** 2, 0);
    let better = 0, all = 0;
    counts.forEach((count, sum) => { all += count; if (sum <= distance) better += count; });
    return { rho: 1 - (6 * distance) / (n * (n * n - 1)), better, all };
  }

  function make(name, attributes, ...children) {
    const element = name.startsWith("svg:") ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  class Decks {
    constructor(root) {
      this.counts = orders(CARDS);
      this.order = Array.from({ length: CARDS }, (_, card) => card);
      this.picture = make("svg:svg", { viewBox: "0 0 480 190", role: "img" });
      this.said = make("p", { class: "said", "aria-live": "polite" });
      const button = (text, act) => {
        const element = make("button", { type: "button", class: "btn btn-outline-primary btn-sm" }, text);
        element.addEventListener("click", () => { act(); this.draw(); });
        return element;
      };
      root.replaceChildren(
        this.picture,
        make("p", { class: "buttons" },
          button("Shuffle the second deck", () => this.shuffle()),
          button("Exchange two neighbours", () => this.exchange()),
          button("As the first deck", () => this.order.sort((a, b) => a - b))),
        this.said);
      this.draw();
    }

    shuffle() {
      for (let i = CARDS - 1; i > 0; i--) {
        const j = Math.floor(Math.random() * (i + 1));
        [this.order[i], this.order[j]] = [this.order[j], this.order[i]];
      }
    }

    exchange() {
      const at = Math.floor(Math.random() * (CARDS - 1)), a = this.order.indexOf(at), b = this.order.indexOf(at + 1);
      [this.order[a], this.order[b]] = [this.order[b], this.order[a]];
    }

    draw() {
      const x = (at) => 30 + 60 * at, letters = "ABCDEFGH";
      const { rho, better, all } = judged(this.order, this.counts);
      const card = (at, y, letter) => make("svg:g", {},
        make("svg:rect", { x: x(at) - 20, y, width: 40, height: 44, rx: 5, class: "playing" }),
        make("svg:text", { x: x(at), y: y + 29, "text-anchor": "middle" }, letter));
      this.picture.replaceChildren(
        ...this.order.map((at, i) => make("svg:line",
          { x1: x(i), y1: 52, x2: x(at), y2: 138, class: at === i ? "kept" : "moved" })),
        ...this.order.map((_, i) => card(i, 8, letters[i])),
        ...this.order.map((at, i) => card(at, 138, letters[i])));
      const share = better / all, written = share < 0.001 ? share.toExponential(1) : share.toPrecision(2);
      this.picture.setAttribute("aria-label",
        `Two decks of ${CARDS} cards; lines join equal cards. ${this.order.filter((at, i) => at === i).length} cards stand in the same place.`);
      this.said.textContent =
        `Spearman's rho = ${rho.toFixed(2)}. ${better.toLocaleString("en")} of all ${all.toLocaleString("en")} orders ` +
        `${better === 1 ? "agrees" : "agree"} at least so well: p = ${written}${better === 1 ? `, the smallest that ${CARDS} cards can give` : ""}.`;
    }
  }

  window.provlabDecks = { orders, judged };
  const begin = () => {
    const root = document.getElementById("provlab-decks");
    if (root) new Decks(root);
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
