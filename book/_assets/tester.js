// The page that tests: two blocks in, matchings and p-values out, all in the reader's browser. Nothing is requested unless
// the reader presses the button that asks the hub for parts of two models.
//
// `arithmetic` computes and knows no page: it runs in a worker, so that the page answers meanwhile, and in the tests
// beside Python. `weights` reads safetensors, `hub` those of a public model by parts. `Tester` is the page. The constants of Spearman's law, the names of
// tensors and the blocks to choose from were written into the page by provlab_study.matching_and_pvalues.in_browser.
(() => {
  "use strict";

  function arithmetic(tables) {
    const LN10 = Math.LN10;
    const DEEP = 256; // columns of a product taken together: their pieces of six rows stay in the fastest memory

    // Random numbers that a seed gives again (mulberry32): the page shows the same for the same choices.
    function generator(seed) {
      let state = seed >>> 0;
      const uniform = () => {
        state = (state + 0x6d2b79f5) >>> 0;
        let t = Math.imul(state ^ (state >>> 15), state | 1);
        t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
        return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
      };
      const permutation = (n) => {
        const order = Int32Array.from({ length: n }, (_, i) => i);
        for (let i = n - 1; i > 0; i--) {
          const j = Math.floor(uniform() * (i + 1));
          [order[i], order[j]] = [order[j], order[i]];
        }
        return order;
      };
      const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
      return { uniform, permutation, normal };
    }

    // A matrix is {values, rows, columns}, values row by row.

    function unitRows({ values, rows, columns }) {
      const unit = new Float64Array(rows * columns);
      for (let i = 0; i < rows; i++) {
        const from = i * columns;
        let largest = 0;
        for (let k = 0; k < columns; k++) largest = Math.max(largest, Math.abs(values[from + k]));
        let sum = 0; // of squares that cannot overflow
        for (let k = 0; k < columns; k++) sum += (values[from + k] / largest) ** 2;
        const length = Math.sqrt(sum);
        for (let k = 0; k < columns; k++) unit[from + k] = values[from + k] / largest / length;
      }
      return unit;
    }

    // Cosine of each row of `a` with each row of `b`, (a.rows, b.rows): four rows by two at a time.
    function cosines(a, b) {
      const m = b.rows, d = a.columns;
      const A = unitRows(a), B = unitRows(b), C = new Float64Array(a.rows * m);
      const tall = a.rows - (a.rows % 4), wide = m - (m % 2);
      for (let from = 0; from < d; from += DEEP) {
        const depth = Math.min(DEEP, d - from);
        for (let j = 0; j < wide; j += 2) {
          const b0 = j * d + from, b1 = b0 + d;
          for (let i = 0; i < tall; i += 4) {
            const a0 = i * d + from, a1 = a0 + d, a2 = a1 + d, a3 = a2 + d;
            let c00 = 0, c01 = 0, c10 = 0, c11 = 0, c20 = 0, c21 = 0, c30 = 0, c31 = 0;
            for (let k = 0; k < depth; k++) {
              const x = B[b0 + k], y = B[b1 + k];
              const p = A[a0 + k], q = A[a1 + k], r = A[a2 + k], s = A[a3 + k];
              c00 += p * x; c01 += p * y; c10 += q * x; c11 += q * y;
              c20 += r * x; c21 += r * y; c30 += s * x; c31 += s * y;
            }
            const at = i * m + j;
            C[at] += c00; C[at + 1] += c01; C[at + m] += c10; C[at + m + 1] += c11;
            C[at + 2 * m] += c20; C[at + 2 * m + 1] += c21; C[at + 3 * m] += c30; C[at + 3 * m + 1] += c31;
          }
        }
      }
      for (let i = 0; i < a.rows; i++) {
        for (let j = i < tall ? wide : 0; j < m; j++) {
          let sum = 0;
          for (let k = 0; k < d; k++) sum += A[i * d + k] * B[j * d + k];
          C[i * m + j] = sum;
        }
      }
      return C;
    }

    // The assignment of largest sum, n rows to m >= n columns (Jonker and Volgenant, 1987). A row's worth in a column is
    // its similarity less the column's price. First rows bid: each takes its best column and raises the price until its
    // second best is as good; the row that owned the column bids next. Rows that are left then take a column along a
    // shortest augmenting path. Columns without a row keep the price 0, so that at the end nothing could be better:
    // `gap` is by how much any other assignment could be, read off the whole matrix.
    function assign(C, n, m, bids = 32) {
      const price = new Float64Array(m), owner = new Int32Array(m).fill(-1), column = new Int32Array(n).fill(-1);
      let left = [];
      let budget = bids * n; // of bids; the tests give none, so that every row but the first takes a path
      for (let first = 0; first < n; first++) {
        for (let i = first; i >= 0; ) {
          let top = -Infinity, second = -Infinity, best = -1, next = -1;
          for (let j = 0, at = i * m; j < m; j++, at++) {
            const worth = C[at] - price[j];
            if (worth > top) { second = top; next = best; top = worth; best = j; }
            else if (worth > second) { second = worth; next = j; }
          }
          const tied = top <= second;
          if (tied && owner[best] >= 0 && owner[next] < 0) best = next; // as good, and free
          const before = owner[best];
          if (before >= 0 && (tied || --budget < 0)) { left.push(i); break; }
          owner[best] = i; column[i] = best;
          if (m > 1) price[best] += top - second;
          if (before >= 0) column[before] = -1;
          i = before;
        }
      }
      const loss = new Float64Array(m), by = new Int32Array(m), done = new Uint8Array(m);
      for (const start of left) {
        // Dijkstra: an exchange loses what the best column of its row is worth more than the new one
        loss.fill(Infinity); done.fill(0);
        const settled = [];
        let row = start, so_far = 0, end = -1;
        while (end < 0) {
          let own = -Infinity;
          if (row === start) for (let j = 0, at = row * m; j < m; j++, at++) own = Math.max(own, C[at] - price[j]);
          else own = C[row * m + column[row]] - price[column[row]];
          let nearest = Infinity, near = -1;
          for (let j = 0, at = row * m; j < m; j++, at++) {
            if (done[j]) continue;
            const through = so_far + own - (C[at] - price[j]);
            if (through < loss[j]) { loss[j] = through; by[j] = row; }
            if (loss[j] < nearest || (loss[j] === nearest && owner[j] < 0)) { nearest = loss[j]; near = j; }
          }
          so_far = nearest;
          if (owner[near] < 0) end = near;
          else { done[near] = 1; settled.push(near); row = owner[near]; }
        }
        for (const j of settled) price[j] += so_far - loss[j];
        for (let j = end; ; ) {
          const i = by[j], before = column[i];
          owner[j] = i; column[i] = j;
          if (i === start) break;
          j = before;
        }
      }
      let gap = 0, objective = 0;
      for (let i = 0; i < n; i++) {
        let top = -Infinity;
        for (let j = 0, at = i * m; j < m; j++, at++) top = Math.max(top, C[at] - price[j]);
        gap += top - (C[i * m + column[i]] - price[column[i]]);
        objective += C[i * m + column[i]];
      }
      for (let j = 0; j < m; j++) if (owner[j] < 0) gap += Math.max(price[j], 0);
      return { partners: column, objective, gap };
    }

    // MATCH: for each row of the smaller side its partner on the larger (of equal sides, `a` counts as the smaller). The
    // larger side is put into a random order first, so that ties say nothing of the order in which units stand.
    function match(a, b, random) {
      const [small, large] = a.rows <= b.rows ? [a, b] : [b, a];
      const order = random.permutation(large.rows);
      const d = large.columns, values = new Float64Array(large.rows * d);
      order.forEach((row, at) => values.set(large.values.subarray(row * d, (row + 1) * d), at * d));
      const best = assign(cosines(small, { values, rows: large.rows, columns: d }), small.rows, large.rows);
      return { ...best, partners: best.partners.map((at) => order[at]) };
    }

    // Spearman's law (provlab.inference.tail has the derivation; its constants come with the page) ---------------------

    function logFactorial(n) {
      let sum = 0;
      for (let i = 2; i <= n; i++) sum += Math.log(i);
      return sum;
    }

    function chebyshev({ low, high }, coefficients, x) {
      const u = (2 * x - low - high) / (high - low);
      let one = 0, two = 0;
      for (let k = coefficients.length - 1; k > 0; k--) [one, two] = [2 * u * one - two + coefficients[k], one];
      return u * one - two + coefficients[0];
    }

    function derivative({ low, high }, coefficients) {
      const slope = new Array(coefficients.length - 1).fill(0);
      for (let k = coefficients.length - 1; k > 0; k--) slope[k - 1] = (slope[k + 1] ?? 0) + 2 * k * coefficients[k];
      slope[0] /= 2;
      return slope.map((value) => (value * 2) / (high - low));
    }

    const linspace = (low, high, n) => Float64Array.from({ length: n }, (_, i) => low + ((high - low) * i) / (n - 1));
    const sumOfSquares = (n) => (n * n - 1) / (12 * n);

    // Mills' ratio of the normal law, (1 - Phi(w)) / phi(w), for w >= 0
    function mills(w) {
      if (w > 3) { // Laplace's continued fraction, from behind
        let tail = w;
        for (let k = 120; k > 0; k--) tail = w + k / tail;
        return 1 / tail;
      }
      let term = w, sum = w; // Phi(w) - 1/2 = phi(w) (w + w^3/3 + w^5/15 + ...)
      for (let k = 1; term > 1e-18 * sum; k++) sum += term *= (w * w) / (2 * k + 1);
      return Math.sqrt(Math.PI / 2) * Math.exp((w * w) / 2) - sum;
    }

    function lugannaniRice(rate, s, variance) {
      const w = Math.sqrt(2 * Math.max(rate, 1e-12));
      const u = 2 * Math.sinh(Math.min(s, 600) / 2) * Math.sqrt(Math.max(variance, 1e-12));
      return -0.5 * w * w - 0.5 * Math.log(2 * Math.PI) + Math.log(Math.max(mills(w) + 1 / u - 1 / w, 1e-300));
    }

    function pointsWhereWide(n, high) {
      const { domain, single, carried } = tables.wide;
      const ratio = single[n] ?? carried[0].map((slope, k) => n * slope + carried[1][k] + carried[2][k] / n);
      const once = derivative(domain, ratio), twice = derivative(domain, once);
      return Array.from(linspace(0.05, Math.asinh(high), tables.points), (v) => {
        const t = Math.sinh(v), c = Math.cosh(v);
        const f = chebyshev(domain, ratio, v), f1 = chebyshev(domain, once, v) / c;
        const f2 = (chebyshev(domain, twice, v) - f1 * t) / c ** 2;
        const k = t * t * f, first = 2 * t * f + t * t * f1, second = 2 * f + 4 * t * f1 + t * t * f2;
        const ln_p = lugannaniRice(t * first - k, t / n ** 2, second * n ** 4);
        return [n ** 2 * (sumOfSquares(n) - first) - 0.5, ln_p];
      });
    }

    function narrow(s, n) {
      const { domain, g: gExact, e: eExact, from, zeta } = tables.narrow;
      const root = Math.sqrt(s);
      const g = 0.5 * Math.log((2 * Math.PI) / s) - 1 + (zeta / (4 * Math.sqrt(Math.PI))) * root +
        s / 96 + 1.012e-3 * s ** 1.5 + 8.4e-5 * s * s;
      const e = -0.994624 / root - 0.25 * Math.log(s) + 0.56061 + 0.171038 * root - 0.017238 * s - 0.00015 * s ** 1.5;
      const x = Math.min(Math.max((s - from) / 0.3, 0), 1), share = x ** 3 * (10 - 15 * x + 6 * x * x);
      if (share === 0) return n * g + e;
      const at = Math.log(Math.max(s, from));
      return n * ((1 - share) * g + share * chebyshev(domain, gExact, at)) +
        (1 - share) * e + share * chebyshev(domain, eExact, at);
    }

    function pointsWhereNarrow(n, high) {
      const low = Math.log(high / n ** 2), top = Math.log(tables.narrow.narrowest), total = logFactorial(n);
      const step = (top - low) / (tables.points - 1);
      return Array.from(linspace(low, top, tables.points), (ln_s) => {
        const s = Math.exp(ln_s);
        const [back, before, k, after, ahead] = [-2, -1, 0, 1, 2].map((j) => narrow(Math.exp(ln_s + j * step), n));
        const slope = (back - 8 * before + 8 * after - ahead) / (12 * step);
        const bend = (-back + 16 * before - 30 * k + 16 * after - ahead) / (12 * step ** 2);
        const first = slope / s, second = (bend - slope) / (s * s);
        return [-first - 0.5, lugannaniRice(total - k + s * first, s, second)];
      });
    }

    // ln P(D / 2 <= k) for k = 0 to 8: rows of r pieces, L ranks together, stand among n ranks in C(n - L + r, r) ways
    function nearTheFloor(n) {
      const counts = new Array(tables.nearest + 1).fill(0);
      for (const [r, length, k, ways] of tables.near) {
        if (length > n) continue;
        let places = 1;
        for (let i = 1; i <= r; i++) places = (places * (n - length + i)) / i;
        counts[k] += ways * places;
      }
      const total = logFactorial(n);
      let below = 0;
      return counts.map((count) => Math.log((below += count)) - total);
    }

    const curves = new Map();
    function curve(n) {
      if (!curves.has(n)) {
        const high = Math.min(tables.widest, 0.6 * n * n), middle = (n ** 3 - n) / 12, near = nearTheFloor(n);
        const floor = near[tables.nearest];
        const points = [...pointsWhereWide(n, high), ...pointsWhereNarrow(n, high)].filter(
          ([half, ln_p]) => half > tables.nearest && half < middle - 0.5 && ln_p > floor);
        points.push([middle - 0.5, Math.log(0.5)], [tables.nearest, floor]);
        points.sort((one, other) => one[0] - other[0]);
        let highest = -Infinity;
        curves.set(n, { near, x: points.map(([half]) => Math.log1p(half / n)),
          y: points.map(([, ln_p]) => (highest = Math.max(highest, ln_p))) });
      }
      return curves.get(n);
    }

    function lnLowerTail(half, n) {
      const { near, x, y } = curve(n);
      if (half <= tables.nearest) return near[half];
      const at = Math.log1p(half / n);
      let low = 0, high = x.length - 1;
      if (at >= x[high]) return y[high];
      while (high - low > 1) {
        const between = (low + high) >> 1;
        if (x[between] <= at) low = between; else high = between;
      }
      return y[low] + ((y[high] - y[low]) / (x[high] - x[low])) * (at - x[low]);
    }

    // log10 of P(D <= distance) for a uniform permutation of n ranks, and never below that of a perfect match
    function log10Tail(distance, n) {
      const floor = -logFactorial(n) / LN10;
      if (tables.counted[n]) {
        const below = tables.counted[n];
        return Math.max(Math.log10(below[distance / 2] / below[below.length - 1]), floor);
      }
      const largest = (n ** 3 - n) / 3, upper = 2 * distance > largest;
      const nearer = upper ? largest - distance - 2 : distance;
      const ln_p = nearer < 0 ? -Infinity : lnLowerTail(nearer / 2, n);
      return Math.max((upper ? Math.log1p(-Math.exp(Math.min(ln_p, -1e-16))) : ln_p) / LN10, floor);
    }

    function ranks(values) {
      const order = Array.from(values, (_, i) => i).sort((i, j) => values[i] - values[j]);
      const result = new Int32Array(values.length);
      order.forEach((i, rank) => (result[i] = rank));
      return result;
    }

    // Spearman's correlation of two vectors without repeated values, and its one-sided p-value
    function spearman(a, b) {
      const n = a.length, first = ranks(a), second = ranks(b);
      let distance = 0;
      for (let i = 0; i < n; i++) distance += (first[i] - second[i]) ** 2;
      const rho = n > 1 ? 1 - (6 * distance) / (n * (n * n - 1)) : NaN;
      return { rho, distance, n, log10_p: log10Tail(distance, n), floor: -logFactorial(n) / LN10 };
    }

    // How many of n units independent models may have in common: the 99% point of a beta-binomial law
    function allowance(n) {
      const [a, b] = tables.common;
      let mass = 1, below = 0; // P(f + 1) / P(f) = (n - f) (a + f) / ((f + 1) (b + n - f - 1))
      for (let i = 0; i < n; i++) mass *= (b + i) / (a + b + i);
      for (let f = 0; f < n; f++) {
        below += mass;
        if (below >= 0.99) return Math.min(f, n - 1);
        mass *= ((n - f) * (a + f)) / ((f + 1) * (b + n - f - 1));
      }
      return n - 1;
    }

    // Two matchings of the same units, where up to `common` may agree without evidence: these are left out at random,
    // and so are `idle` units and units swapped in pairs; the partners of the others get random labels (provlab.inference.allowing says why).
    function allowing(a, b, common, random, idle = []) {
      const n = a.length, left = Array.from(a, (_, i) => !idle[i]), by = new Map(Array.from(b, (value, i) => [value, i]));
      const agreeing = Array.from(a, (_, i) => i).filter((i) => left[i] && a[i] === b[i]);
      Array.from(random.permutation(agreeing.length)).slice(0, common).forEach((at) => (left[agreeing[at]] = false));
      const onto = Array.from(a, (value) => by.get(value) ?? -1);
      const which = Array.from(a, (_, i) => i).filter(
        (i) => left[i] && !(onto[i] >= 0 && onto[i] !== i && onto[onto[i]] === i));
      if (which.length < 2) return { which, log10_p: 0, labels: [[], []] };
      const partners = [...new Set(which.flatMap((i) => [a[i], b[i]]))];
      const order = random.permutation(partners.length), label = new Map(partners.map((value, i) => [value, order[i]]));
      const labels = [a, b].map((side) => which.map((i) => label.get(side[i])));
      return { which, labels, log10_p: spearman(...labels).log10_p };
    }

    // The two tests -------------------------------------------------------------------------------------------------------

    const rowsOf = ({ values, rows, columns }, order) => {
      const moved = new Float64Array(values.length);
      order.forEach((row, at) => moved.set(values.subarray(row * columns, (row + 1) * columns), at * columns));
      return { values: moved, rows, columns };
    };

    const drawn = new Map(); // noise is drawn once: the slider only changes its share
    function noiseFor(seed, length) {
      const key = `${seed} ${length}`;
      if (!drawn.has(key)) drawn.set(key, Float64Array.from({ length }, generator(seed).normal));
      return drawn.get(key);
    }

    // Up and gate of B with a share of noise of their own size, and with their units in another order, if asked for
    function disguised(b, { noise, shuffle, seed }) {
      const order = generator(seed).permutation(b.up.rows);
      const change = (matrix, role) => {
        let { values } = matrix;
        if (noise) {
          let square = 0;
          for (const value of values) square += value * value;
          const size = noise * Math.sqrt(square / values.length), normal = noiseFor(seed + role, values.length);
          values = values.map((value, k) => (1 - noise) * value + size * normal[k]);
        }
        return shuffle ? rowsOf({ ...matrix, values }, order) : { ...matrix, values };
      };
      return { up: change(b.up, 1), gate: b.gate && change(b.gate, 2) };
    }

    // Size of the cosine between each unit's own gate and up: where these are nearly one, so are its two matchings
    function tied({ gate, up }) {
      const A = unitRows(gate), B = unitRows(up), d = up.columns;
      return Float64Array.from({ length: up.rows }, (_, i) => {
        let sum = 0;
        for (let k = i * d; k < (i + 1) * d; k++) sum += A[k] * B[k];
        return Math.abs(sum);
      });
    }

    function test(a, b, choices) {
      const began = performance.now();
      const other = disguised(b, choices), random = generator(choices.seed + 1);
      const up = match(a.up, other.up, random);
      const own = Int32Array.from(up.partners, (_, i) => i);
      const result = { in_order: { ...spearman(up.partners, own), partners: up.partners, own, gap: up.gap,
        agree: own.filter((i) => up.partners[i] === i).length } };
      if (a.gate && other.gate) {
        const gate = match(a.gate, other.gate, random), common = allowance(own.length);
        result.any_order = { ...spearman(gate.partners, up.partners), partners: up.partners, own: gate.partners,
          gap: gate.gap, common, floor: -logFactorial(own.length - common) / LN10, agree: own.filter((i) => up.partners[i] === gate.partners[i]).length };
        const [small, large] = a.up.rows <= b.up.rows ? [tied(a), tied(other)] : [tied(other), tied(a)];
        const idle = own.map((i) => up.partners[i] === gate.partners[i] &&
          (small[i] > tables.tied || large[up.partners[i]] > tables.tied));
        const alike = Math.max(...[small, large].map((values) => values.reduce((sum, value) => sum + value) / values.length));
        if (alike > tables.most_tied) {
          Object.assign(result.any_order, { log10_p: 0, withheld: "No p-value: the gate and up projections of a unit look alike." });
        } else result.any_order.log10_p = allowing(gate.partners, up.partners, common, random, idle).log10_p;
      }
      result.seconds = (performance.now() - began) / 1000;
      return result;
    }

    return { generator, cosines, assign, match, log10Tail, spearman, allowance, allowing, disguised, test };
  }

  // Safetensors ---------------------------------------------------------------------------------------------------------

  // Each function refuses by throwing an Error whose message is one line for the reader.
  function weights(tables) {
    const HEADER = 100_000_000; // bytes, as the format's own reader allows
    const half = (bits) => {
      const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
      if (exponent === 31) return fraction ? NaN : sign * Infinity;
      return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
    };
    const halves = () => (halves.all ??= Float64Array.from({ length: 65536 }, (_, bits) => half(bits)));
    const DTYPES = {
      F64: [8, (buffer) => new Float64Array(buffer)],
      F32: [4, (buffer) => Float64Array.from(new Float32Array(buffer))],
      F16: [2, (buffer) => { const table = halves(); return Float64Array.from(new Uint16Array(buffer), (bits) => table[bits]); }],
      BF16: [2, (buffer) => Float64Array.from(new Float32Array(
        Uint32Array.from(new Uint16Array(buffer), (bits) => bits << 16).buffer))],
    };
    const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const names = tables.tensors.map((row) => ({
      ...row, pattern: new RegExp(`^(.*\\.)?${escaped(row.name).replace("\\{block\\}", "(\\d+)")}$`) }));

    // The tensors of a file: [{name, entry, blob, called, start}]. A blob is a File, or what `hub` has in its place.
    async function tensors(blob, called) {
      const start = blob.size >= 8 ? new DataView(await blob.slice(0, 8).arrayBuffer()) : null;
      const length = start ? Number(start.getBigUint64(0, true)) : 0;
      if (!start || length < 2 || length > HEADER || 8 + length > blob.size) {
        throw new Error(`${called} is no safetensors file: it does not begin with the length of a header.`);
      }
      let header;
      try { header = JSON.parse(await blob.slice(8, 8 + length).text()); } catch { header = null; }
      if (!header || typeof header !== "object" || Array.isArray(header)) {
        throw new Error(`${called} is no safetensors file: its header is no list of tensors.`);
      }
      return Object.entries(header).map(([name, entry]) => ({ name, entry, blob, called, start: 8 + length }));
    }

    // Whether a tensor is a gate or an up projection of this block, as far as its name says
    const within = (name, number) => names.some(({ pattern }) => Number(pattern.exec(name)?.[2]) === number);

    // The blocks of a file that have an up projection: [{label, up, gate}] in the order of their numbers.
    const open = async (blob, called) => blocksOf(await tensors(blob, called), called);

    function blocksOf(all, called) {
      const blocks = new Map();
      for (const { name, entry, ...where } of all) {
        for (const { pattern, roles, transposed } of names) {
          const parts = pattern.exec(name);
          if (!parts || !Array.isArray(entry?.shape) || entry.shape.length !== 2) continue;
          const [units, width] = transposed ? [...entry.shape].reverse() : entry.shape;
          const key = `${parts[1] ?? ""} ${parts[2]}`;
          const block = blocks.get(key) ?? { prefix: parts[1] ?? "", number: Number(parts[2]) };
          roles.forEach((role, at) => {
            const tensor = { ...where, name, entry, at, of: roles.length, transposed };
            // a name that two families read differently: a block has more units than its width
            if ((role === "up" || role === "gate") && (!block[role] || units / roles.length >= width)) block[role] = tensor;
          });
          blocks.set(key, block);
        }
      }
      const list = [...blocks.values()].filter((block) => block.up);
      if (!list.length) throw new Error(`${called} holds no up projection under a name that this page knows.`);
      list.sort((one, other) => one.prefix.localeCompare(other.prefix) || one.number - other.number);
      const several = new Set(list.map((block) => block.prefix)).size > 1;
      return list.map((block) => ({ ...block, label: `block ${block.number}${several ? ` of ${block.prefix}` : ""}` }));
    }

    // The first units of one tensor: {values, rows, columns, all}, float64, units as rows. As many as a product of
    // 2^30 multiplications allows: 1,024 at widths up to 1,024, and 512 at width 4,096.
    async function read({ blob, called, name, entry, at, of, transposed, start }) {
      const [bytes, decode] = Object.hasOwn(DTYPES, entry.dtype) ? DTYPES[entry.dtype] : [];
      if (!decode) throw new Error(`${called}: ${name} is stored as ${entry.dtype}; this page reads F64, F32, F16 and BF16.`);
      const [height, width] = entry.shape, [from, to] = entry.data_offsets ?? [];
      const sound = [height, width, from, to].every((value) => Number.isSafeInteger(value) && value >= 0);
      if (!sound || !height || !width || to - from !== height * width * bytes || start + to > blob.size) {
        throw new Error(`${called}: ${name} does not fill its place in the file, which is cut off or damaged.`);
      }
      const all = (transposed ? width : height) / of, columns = transposed ? height : width;
      const rows = Math.min(all, 1024, Math.floor(Math.sqrt(2 ** 30 / columns)));
      let values;
      if (transposed) {
        const whole = decode(await blob.slice(start + from, start + to).arrayBuffer());
        values = new Float64Array(rows * columns);
        for (let i = 0; i < rows; i++) {
          for (let k = 0; k < columns; k++) values[i * columns + k] = whole[k * width + at * all + i];
        }
      } else {
        const begin = start + from + at * all * width * bytes;
        values = decode(await blob.slice(begin, begin + rows * width * bytes).arrayBuffer());
      }
      for (let i = 0; i < rows; i++) {
        let largest = 0;
        for (let k = 0; k < columns; k++) {
          const size = Math.abs(values[i * columns + k]);
          if (!(size < Infinity)) throw new Error(`${called}: ${name} holds a value that is not finite, in unit ${i + 1}.`);
          if (size > largest) largest = size;
        }
        if (!largest) throw new Error(`${called}: unit ${i + 1} of ${name} is all zeros and has no direction.`);
      }
      return { values, rows, columns, all };
    }

    return { open, read, tensors, within, blocksOf };
  }

  // Parts of a public model ---------------------------------------------------------------------------------------------

  const HUB = "https://huggingface.co";
  const NAME = /^(\w[\w.-]*(?:\/\w[\w.-]*)?)((?:\/\w[\w.-]*)*)(?:@(\w[\w./-]*))?$/; // ORG/NAME[/FOLDER][@REVISION]
  const START = 40_000; // bytes in which most headers end
  const MOST = 2 ** 26; // bytes of one request: a tensor that is stored across has to come whole
  const PATIENCE = 60_000; // milliseconds for one answer

  // Stands where a File would, and asks for the bytes that are read; `size` is unknown where the server does not show it.
  class Remote {
    constructor(url, called) {
      this.url = url;
      this.called = called;
      this.size = Infinity;
    }

    async part(from, to) {
      if (to - from > MOST) throw new Error(`${this.called} would have to send ${Math.ceil((to - from) / 1e6)} MB at once.`);
      const answer = await ask(this.url, this.called, { Range: `bytes=${from}-${to - 1}` });
      if (answer.status !== 206) {
        await answer.body?.cancel();
        throw new Error(`${this.called}: the server sends whole files only, and this page asks for parts.`);
      }
      const total = Number(/\/(\d+)$/.exec(answer.headers.get("Content-Range") ?? "")?.[1]);
      if (total) this.size = total;
      const bytes = await answer.arrayBuffer().catch(() => null);
      if (from === 0 && bytes && bytes.byteLength < Math.min(to, this.size)) this.size = Math.min(this.size, bytes.byteLength); // all of a short file
      if (bytes?.byteLength !== Math.min(to, this.size) - from) throw new Error(`${this.called} arrived cut off; press again.`);
      return bytes;
    }

    slice(from, to) {
      const bytes = async () => {
        if (to > START) return this.part(from, to);
        return (await (this.begin ??= this.part(0, START))).slice(from, to);
      };
      return { arrayBuffer: bytes, text: async () => new TextDecoder().decode(await bytes()) };
    }
  }

  async function ask(url, called, headers = {}) {
    let answer;
    try {
      answer = await fetch(url, { headers, credentials: "omit", referrerPolicy: "no-referrer",
        signal: AbortSignal.timeout(PATIENCE) });
    } catch (error) {
      const host = new URL(url).host;
      throw new Error(error.name === "TimeoutError" ? `${host} did not answer within ${PATIENCE / 1000} s.`
        : `${called} could not be fetched: there is no network, or ${host} does not let web pages read it.`);
    }
    if (answer.ok) return answer;
    await answer.body?.cancel();
    throw new Error([401, 403].includes(answer.status) ? `${called} is not there, or is gated or private: this page has no token.`
      : answer.status === 404 ? `${called} is not on the hub.` : `${called}: the hub answered ${answer.status}; press again later.`);
  }

  function hub(weights, endpoint) {
    const parsed = (model) => {
      const parts = NAME.exec(model);
      if (!parts || model.includes("..")) throw new Error(`${model || "Nothing"} is no name of the hub; names are ORG/NAME or ORG/NAME@REVISION.`);
      return { repo: parts[1], inside: parts[2] ? `${parts[2].slice(1)}/` : "", revision: parts[3] ?? "main" };
    };

    // One block of a model: {label, up, gate}, whose rows `weights.read` then asks for.
    async function block(model, number) {
      const { repo, inside, revision } = parsed(model);
      const about = await ask(`${endpoint}/api/models/${repo}/revision/${encodeURIComponent(revision)}`, model);
      const { sha, siblings } = (await about.json().catch(() => null)) ?? {};
      const files = Array.isArray(siblings) ? siblings.map((file) => String(file?.rfilename)) : [];
      const here = files.filter((file) => file.startsWith(inside) && !file.slice(inside.length).includes("/"))
        .map((file) => file.slice(inside.length));
      const at = (file) => `${endpoint}/${repo}/resolve/${encodeURIComponent(sha ?? revision)}/${inside}${encodeURIComponent(file)}`;
      const found = here.filter((file) => file.endsWith(".safetensors"));
      const index = here.find((file) => file === "model.safetensors.index.json") ?? here.find((file) => file.endsWith(".safetensors.index.json"));
      let wanted = found.includes("model.safetensors") ? ["model.safetensors"] : found.length === 1 ? found : [];
      if (!wanted.length && index) {
        const table = (await (await ask(at(index), model)).json().catch(() => null))?.weight_map ?? {};
        wanted = [...new Set(Object.entries(table).filter(([name]) => weights.within(name, number)).map(([, file]) => file))]
          .filter((file) => found.includes(file));
        if (!wanted.length) throw new Error(`${model} has no block ${number} with an up projection under a name that this page knows.`);
      }
      if (!wanted.length) throw new Error(found.length ? `${model} has several weight files and no index.` : `${model} holds no safetensors.`);
      const lists = await Promise.all(wanted.map((file) => weights.tensors(new Remote(at(file), model), model)));
      const blocks = weights.blocksOf(lists.flat(), model);
      const one = blocks.find((each) => each.number === number);
      if (!one) {
        const last = Math.max(...blocks.map((each) => each.number));
        throw new Error(`${model} has no block ${number}; blocks are counted from 0, and its last is ${last}.`);
      }
      return one;
    }

    return { block, parsed };
  }

  // The page ------------------------------------------------------------------------------------------------------------

  const LEVEL = Math.log10(0.01 / 2); // two tests are read: Bonferroni at 0.01
  const number = (value, digits) =>
    value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

  // An element with its attributes and children, all as text: a name from a file is never read as HTML.
  // What was asked for at once, awaited one by one: of two faults the first model's is said, whichever came sooner.
  async function inOrder(asked) {
    for (const answer of asked) answer.catch(() => {});
    const answers = [];
    for (const answer of asked) answers.push(await answer);
    return answers;
  }

  function make(tag, attributes = {}, ...children) {
    const svg = ["svg", "path", "text"].includes(tag);
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "function") element.addEventListener(name, value);
      else if (value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children);
    return element;
  }

  // What a reader is told of an error: the browser's own words name no file.
  const said = (error, called) => !(error instanceof DOMException) ? error.message
    : `${called} cannot be read: it is a folder, or was moved or changed after it was chosen. Choose the file again.`;

  // The name of a model in what a reader types or pastes: the address of its page has the name too
  const pasted = (text) => text.trim().replace(/^https?:\/\/(?:www\.)?huggingface\.co\/([^?#]*).*$/, "$1")
    .replace(/\/$/, "").replace(/^([^/]+\/[^/]+)\/tree\/([^/]+)(.*)$/, "$1$3@$2");

  class Tester {
    constructor(root, tables, blocks) {
      this.root = root;
      this.weights = weights(tables);
      this.worker = new Worker(URL.createObjectURL(new Blob([
        `const { test } = (${arithmetic})(${JSON.stringify(tables)}), sides = {};
         onmessage = ({ data }) => {
           Object.assign(sides, data.sides);
           try { postMessage({ result: test(sides.a, sides.b, data.choices) }); }
           catch (error) { postMessage({ fault: "The test stopped: " + error.message }); }
         };`,
      ], { type: "text/javascript" })));
      this.worker.onmessage = ({ data }) => this.finished(data);
      this.sides = { a: {}, b: {} };
      this.busy = this.again = false;
      this.endpoint = HUB;
      this.build(blocks);
      // a file that is dropped beside the boxes would take the place of the page
      for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());
      addEventListener("hashchange", () => this.follow());
      this.ready = this.follow() ? Promise.resolve()
        : Promise.all(["a", "b"].map((side, at) => this.choose(side, blocks[Math.min(at, blocks.length - 1)])));
    }

    // A link such as #a=ORG/A&b=ORG/B&block=0 fills the form; only the button asks.
    follow() {
      const link = new URLSearchParams(location.hash.slice(1));
      if (!link.has("a") || !link.has("b")) return false;
      [this.form.a.value, this.form.b.value, this.form.block.value] = [link.get("a"), link.get("b"), link.get("block") ?? "0"];
      for (const side of Object.values(this.sides)) side.turn = (side.turn ?? 0) + 1; // what was asked for before is not awaited any more
      this.refuse("");
      this.verdict.textContent = "This link names two models of the hub. Nothing has been asked yet: say what you expect, then press the button.";
      return true;
    }

    // Called by the button alone: the one place from which the page asks a network.
    async request() {
      const [a, b] = ["a", "b"].map((name) => (this.form[name].value = pasted(this.form[name].value)));
      const typed = this.form.block.value, number = Number(typed);
      const of = hub(this.weights, this.endpoint);
      this.noise.value = 0; // a disguise of the last pair is none of this one
      this.shuffle.checked = false;
      this.refuse("");
      try {
        if (!typed || !Number.isSafeInteger(number) || number < 0) throw new Error("Blocks are counted from 0.");
        [a, b].forEach(of.parsed);
      } catch (error) {
        this.refuse(error.message);
        return;
      }
      const command = `provlab compare ${a} ${b} --statistic phi_u --blocks ${number}`;
      const turns = ["a", "b"].map((name) => (this.sides[name].turn = (this.sides[name].turn ?? 0) + 1));
      const current = () => ["a", "b"].every((name, at) => this.sides[name].turn === turns[at]);
      try {
        this.verdict.textContent = `Asking ${new URL(this.endpoint).host} for one block of each model…`;
        const blocks = await inOrder([a, b].map((model) => of.block(model, number)));
        const loaded = await inOrder([a, b].map((model, at) => this.load(blocks[at], model)));
        if (!current()) return;
        ["a", "b"].forEach((name, at) => {
          const side = this.sides[name];
          side.zoo.value = "hub";
          side.file.value = "";
          side.layers.hidden = true;
          this.hold(name, loaded[at]);
        });
        history.replaceState(null, "", `#a=${a}&b=${b}&block=${number}`);
        this.copy.hidden = false;
        this.instead = command;
        this.start();
      } catch (error) {
        if (current()) this.refuse(error.message, command);
      }
    }

    async copied() {
      const done = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
      this.copy.textContent = done ? "Copied" : "Copy the address of this page";
    }

    build(blocks) {
      const side = (name, title, at) => {
        const controls = this.sides[name];
        controls.zoo = make("select", { change: () => this.choose(name, blocks[controls.zoo.value]) },
          ...blocks.map((block, i) => make("option", { value: i, selected: i === at }, block.title)),
          make("option", { value: "file", disabled: true }, "a file"), make("option", { value: "hub", disabled: true }, "a model of the hub"));
        controls.file = make("input", { type: "file", accept: ".safetensors",
          change: () => controls.file.files[0] && this.choose(name, { blob: controls.file.files[0] }) });
        controls.layer = make("select", { change: () => this.take(name, controls.blocks[controls.layer.value]) });
        controls.layers = make("label", { hidden: true }, "Its block", controls.layer);
        controls.what = make("p", { class: "what" });
        return make("fieldset", {
          dragover: (event) => event.preventDefault(),
          drop: (event) => {
            event.preventDefault();
            const { files } = event.dataTransfer;
            if (files.length > 1) this.refuse(`${files.length} files were dropped into one box; drop one file into each.`);
            else if (files[0]) this.choose(name, { blob: files[0] });
          } },
          make("legend", {}, title), make("label", {}, "A block of the zoo", controls.zoo),
          make("label", {}, "or a safetensors file, chosen or dropped here", controls.file), controls.layers, controls.what);
      };
      this.noise = make("input", { type: "range", min: 0, max: 100, step: 1, value: 0, input: () => this.start() });
      this.share = make("output", {}, "0%");
      this.shuffle = make("input", { type: "checkbox", change: () => this.start() });
      const text = (placeholder) => make("input", { type: "text", spellcheck: "false", autocapitalize: "none", placeholder });
      this.form = { a: text("ORG/A"), b: text("ORG/B"), block: make("input", { type: "number", min: 0, value: 0 }) };
      const fields = make("form", { novalidate: true, submit: (event) => { event.preventDefault(); this.request(); } },
        make("div", { class: "sides" }, make("label", {}, "Model A of the hub", this.form.a),
          make("label", {}, "Model B of the hub", this.form.b), make("label", {}, "Block, counted from 0", this.form.block)),
        make("p", { class: "what" }, "The button asks huggingface.co for the header of each model and the first rows of one block: " +
          "8 MB of a 7B model. Your address and these names are sent there, and nothing is without the button."),
        make("button", { type: "submit" }, "Fetch these parts and test"));
      const ours = make("details", { open: new URLSearchParams(location.hash.slice(1)).has("a") },
        make("summary", {}, "Two models of the hub, by name"), fields);
      addEventListener("hashchange", () => (ours.open ||= new URLSearchParams(location.hash.slice(1)).has("a")));
      this.fault = make("p", { class: "fault", role: "alert" });
      this.answer = make("p", { class: "answer" });
      this.caveat = make("p", { class: "what" });
      this.copy = make("button", { type: "button", hidden: true, click: () => this.copied() }, "Copy link");
      this.verdict = make("p", { class: "verdict", role: "status" });
      this.table = make("div", { class: "pst-scrollable-table-container" });
      this.pictures = make("div", { class: "pictures" });
      this.root.replaceChildren(ours,
        make("div", { class: "sides" }, side("a", "Model A", 0), side("b", "Model B", Math.min(1, blocks.length - 1))),
        make("p", { class: "noise" }, make("label", {}, "Noise mixed into B", this.noise), this.share),
        make("label", { class: "shuffle" }, this.shuffle, " Put B's hidden units into a random order (B answers as before)"),
        this.fault, this.answer, this.verdict, this.caveat, this.copy, this.table, this.pictures);
    }

    refuse(message, command = "") {
      this.refused = true; // a test that is still running is no answer any more
      this.fault.replaceChildren(message, ...(command ? [" Run instead: ", make("code", {}, command)] : []));
      for (const one of [this.answer, this.verdict, this.caveat]) one.textContent = "";
      this.copy.hidden = true;
      this.table.replaceChildren();
      this.pictures.replaceChildren();
    }

    // A block of the zoo, or a file whose blocks the reader may then choose from
    async choose(name, { blob, title }) {
      const side = this.sides[name], turn = (side.turn = (side.turn ?? 0) + 1);
      if (title) side.file.value = "";
      else side.zoo.value = "file"; // also where it cannot be read: a block of the zoo may then be chosen again
      try {
        side.up = null;
        const blocks = await this.weights.open(blob, title ?? blob.name ?? "The file");
        if (turn !== side.turn) return; // the reader has chosen again
        side.blocks = blocks;
        side.layer.replaceChildren(...side.blocks.map((block, i) => make("option", { value: i }, block.label)));
        side.layers.hidden = Boolean(title);
        this.copy.hidden = true;
        this.instead = "";
        await this.take(name, side.blocks[0], title);
      } catch (error) {
        if (turn !== side.turn) return;
        side.what.textContent = side.file.value = ""; // the same file may be chosen again, once it is mended
        side.layers.hidden = true;
        this.refuse(said(error, title ?? blob.name ?? "The file"));
      }
    }

    async take(name, block, title) {
      const side = this.sides[name], turn = (side.turn = (side.turn ?? 0) + 1);
      try {
        side.up = null;
        const loaded = await this.load(block, title ?? block.up.called);
        if (turn !== side.turn) return;
        this.hold(name, loaded);
        this.start();
      } catch (error) {
        if (turn !== side.turn) return;
        side.what.textContent = side.file.value = "";
        this.refuse(said(error, title ?? block.up.called));
      }
    }

    // The rows of one block: a gate and an up projection of one shape
    async load(block, called) {
      const up = await this.weights.read(block.up), gate = block.gate ? await this.weights.read(block.gate) : null;
      if (gate && (gate.rows !== up.rows || gate.columns !== up.columns)) {
        throw new Error(`${block.up.called}: gate and up projection of ${block.label} differ in shape.`);
      }
      return { up, gate, label: block.label, called };
    }

    hold(name, { up, gate, label, called }) {
      const side = this.sides[name];
      Object.assign(side, { up, gate, called, sent: false });
      const some = up.all > up.rows ? `the first ${number(up.rows, 0)} of ${number(up.all, 0)}` : number(up.rows, 0);
      side.what.textContent = `${label}: ${some} hidden units, width ${number(up.columns, 0)}` +
        (gate ? "" : "; it has no gate, so that one test is run");
    }

    start() {
      this.share.textContent = `${this.noise.value}%`;
      this.noise.setAttribute("aria-valuetext", `${this.noise.value}% noise`);
      const { a, b } = this.sides;
      if (!a.up || !b.up) return;
      if (a.up.columns !== b.up.columns) {
        this.refuse(`A has width ${a.up.columns} and B ${b.up.columns}: rows can be compared over the same inputs only.`, this.instead);
        return;
      }
      if (this.busy) { this.again = true; return; } // the latest choice is run when this one is done
      this.busy = true;
      this.refused = false;
      this.root.setAttribute("aria-busy", "true");
      const choices = { noise: this.noise.value / 100, shuffle: this.shuffle.checked, seed: 1 };
      const fresh = Object.entries(this.sides).filter(([, side]) => !side.sent); // the worker keeps what it was given
      fresh.forEach(([, side]) => (side.sent = true));
      this.worker.postMessage({ sides: Object.fromEntries(fresh.map(([name, { up, gate }]) => [name, { up, gate }])), choices });
    }

    finished({ result, fault }) {
      this.busy = false;
      if (this.again) {
        this.again = false;
        this.start();
        return;
      }
      this.root.removeAttribute("aria-busy");
      if (fault) this.refuse(fault);
      else if (!this.refused) this.show(result);
    }

    show(result) {
      const tests = [
        { name: "φ_U", asks: "Do the units stand in the same places?", along: "unit of the smaller model", up: "its partner", ...result.in_order },
        result.any_order && { name: "gate against up", asks: "Do gates and up projections pick the same partners, in whatever order?",
          along: "partner by gate", up: "partner by up projection", ...result.any_order },
      ].filter(Boolean);
      const rejecting = tests.filter((test) => test.log10_p <= LEVEL);
      const p = (test) => `${test.name}: log10 p = ${number(test.log10_p, 1)}`;
      this.fault.textContent = "";
      [this.answer.textContent, this.caveat.textContent] = this.words(result, rejecting.map((test) => test.name));
      this.verdict.textContent = rejecting.length
        ? `Independent training is rejected at 0.01. ${rejecting.map(p).join("; ")}.`
        : `Independent training is not rejected at 0.01. ${tests.map(p).join("; ")}.`;
      const cells = (test) => [number(test.rho, 3), `${test.agree} of ${test.n}`, number(test.log10_p, 1), number(test.floor, 1)];
      this.table.replaceChildren(make("table", {},
        make("caption", {}, `The exact test, ${number(result.seconds, 2)} s in this browser`),
        make("thead", {}, make("tr", {}, ...["test", "asks", "Spearman's ρ", "units that agree", "log10 p", "smallest possible"]
          .map((text) => make("th", { scope: "col", class: text }, text)))),
        make("tbody", {}, ...tests.map((test) => make("tr", {}, make("th", { scope: "row" }, test.name),
          make("td", { class: "asks" }, test.withheld ?? test.asks), ...cells(test).map((text) => make("td", { class: "number" }, text)))))));
      this.pictures.replaceChildren(...tests.map((test) => this.picture(test)));
      this.result = result;
      this.root.dispatchEvent(new CustomEvent("tested"));
    }

    // The answer in a sentence, and what would fool it
    words({ in_order, any_order }, rejecting) {
      const [a, b] = [this.sides.a.called, this.sides.b.called];
      const some = ({ agree, n }) => (agree === n ? `all ${number(n, 0)}` : `${number(agree, 0)} of ${number(n, 0)}`);
      const rarely = ({ log10_p }) => (log10_p < -6 ? `10^${number(-log10_p, 0)}` : number(10 ** -log10_p, log10_p > -1 ? 1 : 0));
      const chance = (test) => `by chance once in ${rarely(test)} pairs`;
      const whole = (a === b ? "Both names are one: a model beside itself is no copy. " : "") + "This is one block: provlab compare reads all of them.";
      const causes = "A common ancestor makes this, and so does a common initial draw or a mask that both share. The test does not say which model came first.";
      const disguise = "Units moved beyond those that were read, or a rotated stream, would hide a copy.";
      if (rejecting.includes("φ_U")) {
        const order = any_order && rejecting.length < 2
          ? "Whoever puts the units of one model into the other's order, which changes no output, makes this too, and gate and up projections do not bear it out."
          : any_order ? "Gate and up projections, which need no order, agree as well." : "Whoever puts the units of one model into the other's order, which changes no output, makes this too.";
        return [`${some(in_order).replace(/^a/, "A")} hidden units of ${b} stand in the order of ${a}: ${chance(in_order)} of models trained apart.`, `${causes} ${order} ${whole}`];
      }
      if (rejecting.length) {
        return [`Hidden units of ${b} match those of ${a} in another order: for ${some(any_order)} units gate and up projections pick the same partner, ${chance(any_order)} of models trained apart.`,
          `${causes} That chance is an observation on independent models, and no theorem. ${whole}`];
      }
      return [`Nothing here tells ${b} from a model that was trained apart from ${a}: ${some(in_order)} hidden units stand in its order, and models trained apart show as much order in one of ${rarely(in_order)} pairs.`,
        `This is no proof of independence. ${disguise} ${whole}`];
    }

    // One dot a unit. Units that agree lie on the diagonal.
    picture({ name, along, up, own, partners, agree, n }) {
      const most = Math.max(...own, ...partners, 1);
      const dots = Array.from(own, (x, i) => `M${(10 + (x / most) * 86).toFixed(2)},${(90 - (partners[i] / most) * 86).toFixed(2)}h0`);
      const says = `${name}: ${agree} of ${n} dots lie on the diagonal, where both agree.`;
      return make("figure", {},
        make("svg", { viewBox: "0 0 100 100", role: "img", "aria-label": says },
          make("path", { class: "axes", d: "M8,2V92H98" }), make("path", { class: "dots", d: dots.join("") }),
          make("text", { x: 53, y: 98.5, "text-anchor": "middle" }, along),
          make("text", { x: -47, y: 5.5, "text-anchor": "middle", transform: "rotate(-90)" }, up)),
        make("figcaption", {}, says));
    }
  }

  const fromBase64 = (text) => new Blob([Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0))]);

  function begin() {
    const root = document.getElementById("provlab-tester"), data = document.getElementById("provlab-tester-data");
    if (!root || !data) return;
    const blocks = [...document.querySelectorAll("script.provlab-block")].map(
      (script) => ({ title: script.dataset.title, blob: fromBase64(script.textContent) }));
    window.provlab.tester = new Tester(root, JSON.parse(data.textContent), blocks);
  }

  window.provlab = { arithmetic, weights, hub, Tester };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
