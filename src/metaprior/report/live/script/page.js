// The page: what is known, what is asked, and what the model says to it. Everything that is shown follows from `state`.

const LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95];
const PLACES = 201; // of the curves
const COARSE = 81; // of those that are drawn by chance, whose covariance is factored
const DRAWS = 5;
const MOST = 200; // points

const find = (id) => document.getElementById(id);

/** An element with text, properties and children. */
function made(name, text = "", properties = {}, children = []) {
  const element = document.createElement(name);
  element.textContent = text;
  Object.entries(properties).forEach(([key, value]) => {
    if (key.includes("-") || key === "scope" || key === "role") element.setAttribute(key, value);
    else element[key] = value;
  });
  element.append(...children);
  return element;
}

class Page {
  constructor(about, model) {
    Object.assign(this, { about, model });
    this.plot = new Plot(find("canvas"));
    this.d = about.x.length;
    this.p = about.y.length;
    this.kinds = about.x.map((one) => one.kind);
    this.state = {
      points: about.example.map(({ x, y }) => ({ x: [...x], y: [...y] })),
      slice: about.x.map((_, k) => about.example[0]?.x[k] ?? 0),
      task: about.task_x.map((one) => (one.levels.length ? one.levels[0] : one.typical)),
      output: 0,
      latent: false,
      draws: true,
      at: about.ask,
    };
    this.past = [];
    this.priors = { key: null };
    this.places = [];
    this.clicked = -Infinity;
    this.grids = new Map();
    this.words();
    this.sliders();
    this.controls();
    this.fit();
    this.render();
  }

  // ---- what is known ------------------------------------------------------------------------------------------------

  /** A change that can be undone; where the model refuses what came of it, everything is as it was. */
  change(edit, { quietly = false } = {}) {
    const before = structuredClone(this.state);
    edit(this.state);
    try {
      if (this.state.points.length > MOST) throw new Refused(`${MOST} points are the most that this page takes.`);
      const posterior = this.conditioned().at(pointsOf([this.state.slice]), false);
      if (!Number.isFinite(posterior.quantile(this.state.output, 0.95))) throw new Refused(TOO_FAR);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.state = before;
      this.refuse(error.message);
      return false;
    }
    if (!quietly) this.past.push(before);
    find("refused").textContent = find("known").querySelector("[aria-invalid]") ? this.wrong : "";
    return true;
  }

  /** What cannot be is told in place; it stays there as long as a cell is wrong. */
  refuse(message) {
    this.wrong = message;
    find("refused").textContent = message;
  }

  add(x, y) {
    const others = this.state.slice.slice(1);
    const values = this.expectedAt([x, ...others]);
    values[this.state.output] = this.possible(y, this.state.output);
    const done = this.change((state) => state.points.push({ x: [x, ...others], y: values }));
    this.render();
    return done;
  }

  remove(k) {
    this.dragged = null;
    this.change((state) => state.points.splice(k, 1));
    this.render();
  }

  undo() {
    if (!this.past.length) return;
    const { points, slice, task } = this.past.pop(); // what is shown, and how, is not taken back
    Object.assign(this.state, { points, slice, task });
    find("refused").textContent = "";
    this.inControls();
    this.render();
  }

  clear() {
    if (this.state.points.length) this.change((state) => { state.points = []; });
    this.render();
    if (document.activeElement === document.body) find("example").focus();
  }

  /** The nearest value that a target can have. */
  possible(y, output) {
    const { ends, whole } = this.about.y[output];
    return clamp(whole ? Math.round(y) : y, ends[0] ?? -Infinity, ends[1] ?? Infinity);
  }

  /** What the other targets are taken to be at a new point: what is expected of them. */
  expectedAt(x) {
    if (this.p === 1) return [0];
    const posterior = this.conditioned().at(pointsOf([x]), false);
    return this.about.y.map(({ range: [low, high] }, c) =>
      this.possible(Number(shownNumber(posterior.quantile(c, 0.5), (high - low || 1) / 1000)), c));
  }

  // ---- what the model says ------------------------------------------------------------------------------------------

  /** The task as a whole, in numbers. */
  numbers() {
    return this.about.task_x.flatMap(({ levels }, k) =>
      levels.length ? levels.map((level) => Number(level === this.state.task[k])) : [this.state.task[k]]);
  }

  conditioned(points = this.state.points) {
    const context = contextOf(points.map((one) => one.x), points.map((one) => one.y));
    return condition(this.model, context, this.numbers());
  }

  /** Places from one end of the picture to the other, at the slice that is shown. */
  grid(count) {
    const key = JSON.stringify([count, this.plot.view.x, this.state.slice.slice(1), this.state.task]);
    if (!this.grids.has(count) || this.grids.get(count).key !== key) {
      const [low, high] = this.plot.view.x;
      const x = Array.from({ length: count }, (_, i) => low + ((high - low) * i) / (count - 1));
      this.grids.set(count, { key, x, points: pointsOf(x.map((value) => [value, ...this.state.slice.slice(1)])) });
    }
    return this.grids.get(count);
  }

  bands(conditional) {
    const { points } = this.grid(PLACES);
    const posterior = conditional.at(points, this.state.latent);
    return LEVELS.map((level) =>
      Array.from({ length: points.n }, (_, i) => posterior.quantile(i * this.p + this.state.output, level)));
  }

  /** What was expected before any point was known. */
  before() {
    const key = JSON.stringify([this.grid(PLACES).key, this.state.output, this.state.latent]);
    if (this.priors.key !== key) this.priors = { key, bands: this.bands(this.conditioned([])) };
    return this.priors.bands;
  }

  draws(conditional) {
    if (!this.state.draws) return [];
    const { x, points } = this.grid(COARSE);
    const posterior = conditional.at(points, true);
    return Array.from({ length: DRAWS }, (_, k) => {
      const drawn = posterior.draw(new Random(k + 1));
      return { x, y: x.map((_, i) => drawn[i * this.p + this.state.output]) };
    });
  }

  /** The part of the plane that is shown: the past tasks', and all points. */
  fit() {
    const xs = this.state.points.map((one) => one.x[0]);
    const [low, high] = this.about.x[0].range;
    const wide = (from, to, share) => [from - share * (to - from || 1), to + share * (to - from || 1)];
    this.plot.view.x = wide(Math.min(low, ...xs), Math.max(high, ...xs), low === high ? 0.5 : 0);
    const ys = this.state.points.map((one) => one.y[this.state.output]);
    const bands = [...this.before()[0], ...this.before()[4], ...ys, ...this.about.y[this.state.output].range];
    this.plot.view.y = wide(Math.min(...bands), Math.max(...bands), 0.03);
  }

  // ---- what is shown ------------------------------------------------------------------------------------------------

  render({ moving = false } = {}) {
    const start = performance.now();
    if (!moving) this.fit();
    const conditional = this.conditioned();
    this.shown = { x: this.grid(PLACES).x, bands: this.bands(conditional), prior: this.before() };
    const labels = [this.about.x[0].name, this.about.y[this.state.output].name];
    this.plot.draw({ ...this.shown, draws: this.draws(conditional), labels, kind: this.kinds[0] });
    find("canvas").setAttribute("aria-label", `${labels[1]} by ${labels[0]}; the values are in the tables`);
    this.pointButtons();
    this.expected(conditional);
    this.usual(conditional);
    if (!moving) this.table();
    this.python();
    this.notes();
    find("undo").disabled = !this.past.length;
    find("clear").disabled = !this.state.points.length;
    performance.measure("redraw", { start, end: performance.now() });
  }

  words() {
    const { about } = this;
    const task = about.task.join(" and ");
    const [what, by] = [about.y, about.x].map((columns) => columns.map((one) => one.name).join(", "));
    document.title = `A new ${task}: ${what} by ${by}`;
    find("title").textContent = document.title;
    find("lead").textContent = `Click in the picture to say what is known of a new ${task}. The curve shows what `
      + `${about.tasks.toLocaleString("en")} past ones then make likely for the rest. `
      + "Drag a point to move it, double-click it to remove it.";
    find("footer").textContent = `Computed in this page from the model ${about.model}, which was learned from `
      + `${about.tasks.toLocaleString("en")} tasks (${about.rows.toLocaleString("en")} rows) by metaprior `
      + `${about.version}. ${about.served === null ? "Nothing leaves the page." : "A table that you open is read by the server, which does not keep it."}`;
    find("outputs").hidden = this.p === 1;
    find("output").append(...about.y.map((one, k) => made("option", one.name, { value: String(k) })));
    find("at").value = this.state.at;
  }

  notes() {
    const known = this.state.points.map(({ x }) => x);
    find("notes").textContent = notesOn(this.about, known, this.places, this.numbers()).join(" ");
  }

  pointButtons() {
    const holder = find("points");
    while (holder.children.length > this.state.points.length) holder.lastChild.remove();
    while (holder.children.length < this.state.points.length) holder.append(this.pointButton(holder.children.length));
    this.state.points.forEach((point, k) => {
      const [left, top] = this.plot.place(point.x[0], point.y[this.state.output]);
      const button = holder.children[k];
      button.style.left = `${left}px`;
      button.style.top = `${top}px`;
      const near = point.x.every((value, i) => i === 0 || Math.abs(value - this.state.slice[i]) <= this.step(i));
      button.classList.toggle("elsewhere", !near);
      const where = this.about.x.map((one, i) => `${one.name} ${shownInput(point.x[i], one.kind, this.step(i))}`).join(", ");
      const what = `${this.about.y[this.state.output].name} ${shownNumber(point.y[this.state.output], this.stepUp())}`;
      button.setAttribute("aria-label", `${where}: ${what}. Arrow keys move it, Delete removes it.`);
    });
  }

  /** The least step of an input that the picture tells apart. */
  step(k) {
    const [low, high] = k ? this.about.x[k].range : this.plot.view.x;
    return (high - low || 1) / 1000;
  }

  /** The least step of the target. */
  stepUp() { return (this.plot.view.y[1] - this.plot.view.y[0]) / 1000; }

  pointButton(k) {
    const button = made("button", "", { type: "button", className: "point" });
    button.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      const [left, top] = this.plot.place(this.state.points[k].x[0], this.state.points[k].y[this.state.output]);
      const apart = [event.clientX - left, event.clientY - top];
      this.dragged = { k, before: structuredClone(this.state), apart, from: [event.clientX, event.clientY], far: false };
      button.setPointerCapture(event.pointerId);
    });
    button.addEventListener("pointermove", (event) => {
      if (!this.dragged) return;
      this.dragged.far ||= Math.hypot(event.clientX - this.dragged.from[0], event.clientY - this.dragged.from[1]) > 3;
      if (!this.dragged.far) return; // a hand that trembles moves nothing
      this.dragged.to = [event.clientX, event.clientY];
      this.frame ??= requestAnimationFrame(() => this.moved());
    });
    button.addEventListener("pointerup", () => {
      if (!this.dragged) return;
      if (this.frame) this.moved();
      const { before } = this.dragged ?? {};
      this.dragged = null;
      if (before && JSON.stringify(before.points) !== JSON.stringify(this.state.points)) this.past.push(before);
      this.render();
    });
    button.addEventListener("pointercancel", () => {
      if (this.dragged) this.state.points = this.dragged.before.points; // taken from the hand: as if it had not moved
      this.dragged = null;
      this.render();
    });
    button.addEventListener("dblclick", () => { if (performance.now() - this.clicked > 700) this.remove(k); });
    button.addEventListener("contextmenu", (event) => {
      event.preventDefault();
      if (event.pointerType !== "touch") this.remove(k); // a finger that rests on a point is about to move it
    });
    button.addEventListener("keydown", (event) => this.pointKey(event, k));
    return button;
  }

  /** A point under the pointer: once for each picture that the screen shows. */
  moved() {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    if (!this.dragged?.to) return;
    const { k, to, apart } = this.dragged;
    const [x, y] = this.plot.value(to[0] - apart[0], to[1] - apart[1]);
    this.move(k, { x, y }, true);
    this.render({ moving: true });
  }

  /** A point to another place, within the picture; what does not move keeps its exact value. */
  move(k, { x, y }, quietly) {
    const [[left, right], [low, high]] = [this.plot.view.x, this.plot.view.y];
    return this.change((state) => {
      const point = state.points[k];
      if (x !== undefined) point.x[0] = this.rounded(clamp(x, left, right));
      if (y !== undefined) point.y[state.output] = this.possible(this.roundedTarget(clamp(y, low, high)), state.output);
    }, { quietly });
  }

  /** A place in the picture, as fine as a person can mean it. */
  rounded(x) {
    const { kind, parts } = this.about.x[0];
    const found = kind === "number" ? Number(shownNumber(x, this.step(0))) : Math.round(x * parts) / parts;
    return clamp(found, ...this.plot.view.x); // the end of the range is not beyond it
  }

  roundedTarget(y) {
    return Number(shownNumber(y, this.stepUp()));
  }

  pointKey(event, k) {
    const [across, up] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key] ?? [];
    if (across !== undefined) {
      const share = event.shiftKey ? 0.1 : 0.01;
      const point = this.state.points[k];
      const [[left, right], [low, high]] = [this.plot.view.x, this.plot.view.y];
      const { kind, parts } = this.about.x[0];
      const least = [kind === "number" ? 0 : 1 / parts, Number(this.about.y[this.state.output].whole)]; // nothing in between
      const x = point.x[0] + across * Math.max(share * (right - left), least[0]);
      const y = point.y[this.state.output] + up * Math.max(share * (high - low), least[1]);
      this.move(k, across ? { x } : { y });
      this.render();
    } else if (event.key === "Delete" || event.key === "Backspace") {
      if (event.shiftKey) return;
      this.remove(k);
      (find("points").children[Math.min(k, this.state.points.length - 1)] ?? find("example")).focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // ---- tables -------------------------------------------------------------------------------------------------------

  table() {
    const columns = [...this.about.x, ...this.about.y];
    const head = find("known").tHead;
    if (!head.rows.length) head.append(made("tr", "", {}, columns.map((one) => made("th", one.name, { scope: "col" }))));
    const [body, count] = [find("known").tBodies[0], this.state.points.length];
    const last = body.rows[body.rows.length - 1];
    const begun = last && !this.taken ? [...last.querySelectorAll("input")].map((input) => input.value) : [];
    this.taken = false;
    while (body.rows.length > count + 1) body.lastChild.remove();
    while (body.rows.length < count + 1) body.append(this.row(body.rows.length, columns));
    [...body.rows].forEach((row, k) => this.fill(row, this.state.points[k], columns, begun));
  }

  /** The values of a row that have changed: what a person is typing elsewhere stays, and so does where they are. */
  fill(row, point, columns, begun) {
    row.querySelectorAll("input").forEach((input, c) => {
      const value = point && (c < this.d ? point.x[c] : point.y[c - this.d]);
      const dated = c < this.d && columns[c].kind !== "number";
      const text = !point ? begun[c] ?? "" : dated ? shownInput(value, columns[c].kind) : String(value);
      if (!point || input.dataset.shown !== text) {
        input.value = input.dataset.shown = text;
        input.removeAttribute("aria-invalid");
      }
      const whose = point ? `point ${row.rowIndex}` : "a new point";
      input.setAttribute("aria-label", `${columns[c].name} of ${whose}`);
    });
  }

  row(k, columns) {
    const row = made("tr");
    row.append(...columns.map(() => {
      const input = made("input", "", { autocomplete: "off", "aria-describedby": "refused" });
      input.addEventListener("change", () => this.edited(row, k));
      input.addEventListener("paste", (event) => this.pasted(event));
      input.addEventListener("keydown", (event) => {
        // before the focus moves on, so that it finds the row that comes next
        if ((event.key === "Tab" || event.key === "Enter") && k >= this.state.points.length) this.edited(row, k);
      });
      return made("td", "", {}, [input]);
    }));
    return row;
  }

  /** A row of the table that a person has changed: told in place where it is none. */
  edited(row, k) {
    const inputs = [...row.querySelectorAll("input")];
    inputs.forEach((input) => input.removeAttribute("aria-invalid"));
    const texts = inputs.map((input) => input.value.trim());
    const isNew = k >= this.state.points.length;
    if (texts.every((text) => text === "")) {
      if (!isNew) this.remove(k);
      return;
    }
    if (isNew && this.d > 1) this.state.slice.forEach((value, i) => { if (i && texts[i] === "") texts[i] = inputs[i].value = this.shownSlice(i); });
    if (isNew && texts.some((text) => text === "")) return;
    try {
      const point = this.readRow(texts, inputs);
      if (!isNew && JSON.stringify(point) === JSON.stringify(this.state.points[k])) return;
      if (!this.change((state) => state.points.splice(k, 1, point))) return;
      this.taken = isNew;
      this.render();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.refuse(error.message);
    }
  }

  readRow(texts, inputs = []) {
    const columns = [...this.about.x, ...this.about.y];
    const values = texts.map((text, c) => {
      try {
        return c < this.d ? readInput(text, columns[c].kind, columns[c].name) : this.readTarget(text, c - this.d);
      } catch (error) {
        inputs[c]?.setAttribute("aria-invalid", "true");
        throw error;
      }
    });
    return { x: values.slice(0, this.d), y: values.slice(this.d) };
  }

  readTarget(text, c) {
    const value = readNumber(text, this.about.y[c].name);
    if (Math.abs(value) > 1e75) throw new Refused(`${this.about.y[c].name}: ${TOO_FAR}`); // squares would overflow
    if (this.possible(value, c) === value) return value;
    const { name, said } = this.about.y[c];
    throw new Refused(`${name}: ${value} cannot be. It is ${said}.`);
  }

  /** Columns from a spreadsheet; one value goes into its cell. */
  pasted(event) {
    const lines = event.clipboardData.getData("text").split(/\r?\n/).filter((line) => line.trim());
    const one = lines.length === 1 && /^\s*[-+]?[\d.,]+\s*$/.test(lines[0]) && !/^[^,]*,[^,]*\.[^,]*$/.test(lines[0]);
    if (one) return; // a number, perhaps as others write it: it goes into its cell, and is told there
    const wide = lines.map((line) => line.trim().split(/\t|;/));
    const pointed = (c) => wide.some((texts) => /^\s*[-+]?[\d,]*\.\d/.test(texts[c])); // there a comma is none
    const decimal = (text, c) => (pointed(c) ? text.trim() : text.trim().replace(/^([-+]?\d+),(\d+)$/, "$1.$2"));
    const cells = wide.every((texts) => texts.length > 1)
      ? wide.map((texts) => texts.map(decimal))
      : lines.map((line) => line.trim().split(/\s*,\s*|\s+/));
    if (cells.length === 1 && cells[0].length === 1) return;
    event.preventDefault();
    const fields = this.d + this.p;
    try {
      const titled = cells.length > 1 && cells[0].every((text) => Number.isNaN(Number(text)) && !/^\d/.test(text));
      const points = cells.slice(titled ? 1 : 0).map((texts, k) => {
        if (texts.length !== fields) {
          const found = texts.length === 1 ? "1 value" : `${texts.length} values`;
          throw new Refused(`Line ${k + 1 + titled} has ${found}; give ${fields}: ${this.columns()}.`);
        }
        return this.readRow(texts);
      });
      if (this.change((state) => state.points.push(...points))) this.render();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.refuse(`${error.message} Nothing was pasted.`);
    }
  }

  columns() { return [...this.about.x, ...this.about.y].map((one) => one.name).join(", "); }

  /** The places that a person wants to know about. */
  asked() {
    const [kind, between] = [this.kinds[0], this.kinds[0] === "date" ? /[,;]+\s*|\s+(?=\d{4}-)/ : /[,;\s]+/];
    const texts = this.state.at.split(between).filter((text) => text.trim());
    if (texts.length > 1000) throw new Refused("1,000 places are the most that this page takes.");
    return texts.map((text) => [readInput(text, kind, this.about.x[0].name), ...this.state.slice.slice(1)]);
  }

  expected(conditional) {
    const table = find("expected");
    if (!table.tHead.rows.length) {
      const titles = [this.about.x[0].name, "mean", "90% from", "to"];
      table.tHead.append(made("tr", "", {}, titles.map((title) => made("th", title, { scope: "col" }))));
    }
    try {
      const places = (this.places = this.asked());
      const posterior = conditional.at(pointsOf(places), this.state.latent);
      const apart = (this.plot.view.y[1] - this.plot.view.y[0]) / 300;
      const rows = places.map(([x], i) => {
        const at = i * this.p + this.state.output;
        const values = [posterior.mean(at), posterior.quantile(at, 0.05), posterior.quantile(at, 0.95)];
        if (!values.every(Number.isFinite)) throw new Refused(`${this.about.x[0].name}: ${shownInput(x, this.kinds[0])} is too far away.`);
        const shown = [shownInput(x, this.kinds[0]), ...values.map((value) => fixedNumber(value, apart))];
        return made("tr", "", {}, shown.map((text, c) => made("td", text, c ? { title: String(values[c - 1]) } : {})));
      });
      table.tBodies[0].replaceChildren(...rows);
      find("at-wrong").textContent = "";
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.places = [];
      table.tBodies[0].replaceChildren(); // what stood there was of other places
      find("at-wrong").textContent = error.message;
    }
  }

  usual({ plausibility: found, shares }) {
    const task = this.about.task.join(" and ");
    find("usual").textContent = !this.state.points.length
      ? "No point is known yet."
      : found === undefined || found === null
        ? "This model has not seen how usual past ones were: one that was chosen among several (by fit alone) can tell."
        : found < this.about.unusual
          ? `Hardly any past one, known at as many points, was less usual. This ${task} is unlike them: what is predicted `
            + "is to be doubted."
          : `${Math.round(100 * found)}% of past ones, known at as many points, were less usual.`;
    find("says").hidden = !shares;
    if (shares) find("shares").replaceChildren(...this.shareItems(shares));
  }

  shareItems(shares) {
    return shares.filter(({ weight }) => weight >= 0.005).map(({ name, weight, inside }) => {
      const bar = made("i");
      bar.style.width = `${100 * weight}%`;
      const line = made("div", "", {}, [bar, made("span", name), made("span", `${Math.round(100 * weight)}%`)]);
      return made("li", "", {}, inside ? [line, made("ul", "", {}, this.shareItems(inside))] : [line]);
    });
  }

  python() {
    const rows = (values) => `[${values.map((one) => (Array.isArray(one) ? rows(one) : JSON.stringify(one))).join(", ")}]`;
    const { points, latent } = this.state;
    const task = this.about.task_x.length
      ? `, task_x={${this.about.task_x.map(({ name }, k) => `${JSON.stringify(name)}: ${JSON.stringify(this.state.task[k])}`).join(", ")}}`
      : "";
    const x = points.map((one) => one.x);
    const y = points.map((one) => (this.p === 1 ? one.y[0] : one.y));
    find("python").textContent = [
      "import metaprior",
      "",
      `gp = metaprior.load(${JSON.stringify(this.about.model)})`,
      `x = ${rows(x)}`,
      `y = ${rows(y)}`,
      `known = gp.condition(x, y${task})`,
      ...(this.places.length
        ? [`posterior = known.at(${rows(this.places)})${latent ? ".function" : ""}`, "posterior.mean, posterior.interval(0.9)"]
        : []),
    ].join("\n");
  }

  // ---- controls -----------------------------------------------------------------------------------------------------

  shownSlice(k) { return shownInput(this.state.slice[k], this.kinds[k], this.step(k)); }

  sliders() {
    const others = this.about.x.map((one, k) => ({ ...one, k, of: "slice" })).slice(1);
    const numbers = this.about.task_x.map((one, k) => ({ ...one, k, of: "task" }));
    find("sliders").replaceChildren(...[...others, ...numbers].map((one) => (one.levels?.length ? this.choice(one) : this.slider(one))));
  }

  slider({ name, range: [low, high], k, of, kind = "number" }) {
    const text = () => shownInput(this.state[of][k], kind, (high - low || 1) / 200);
    const shown = made("output", text());
    const input = made("input", "", { type: "range", min: String(low), max: String(high), step: "any" });
    input.value = String(this.state[of][k]);
    input.setAttribute("aria-valuetext", text());
    let from = null;
    input.addEventListener("input", () => {
      from ??= structuredClone(this.state);
      this.state[of][k] = Number(shownNumber(Number(input.value), (high - low || 1) / 200));
      shown.textContent = text();
      input.setAttribute("aria-valuetext", text());
      this.sliding ??= requestAnimationFrame(() => { this.sliding = null; this.render({ moving: true }); });
    });
    input.addEventListener("change", () => {
      if (from) this.past.push(from);
      from = null;
      this.render();
    });
    return made("label", "", {}, [made("span", name), input, shown]);
  }

  choice({ name, levels, k }) {
    const select = made("select", "", {}, levels.map((level) => made("option", level, { value: level })));
    select.value = this.state.task[k];
    select.addEventListener("change", () => {
      this.change((state) => { state.task[k] = select.value; });
      this.render();
    });
    return made("label", "", {}, [made("span", name), select]);
  }

  /** What the controls show, where the state was changed otherwise. */
  inControls() {
    find("draws").checked = this.state.draws;
    find("latent").checked = this.state.latent;
    find("output").value = String(this.state.output);
    find("at").value = this.state.at;
    this.sliders();
  }

  controls() {
    find("undo").addEventListener("click", () => this.undo());
    find("clear").addEventListener("click", () => this.clear());
    find("example").addEventListener("click", () => {
      this.change((state) => { state.points = this.about.example.map(({ x, y }) => ({ x: [...x], y: [...y] })); });
      this.render();
    });
    find("draws").addEventListener("change", (event) => { this.state.draws = event.target.checked; this.render(); });
    find("latent").addEventListener("change", (event) => { this.state.latent = event.target.checked; this.render(); });
    find("output").addEventListener("change", (event) => { this.state.output = Number(event.target.value); this.render(); });
    find("at").addEventListener("input", (event) => { this.state.at = event.target.value; this.expected(this.conditioned()); this.python(); this.notes(); });
    find("at").addEventListener("paste", (event) => event.stopPropagation());
    find("copy").addEventListener("click", () => this.copy());
    const canvas = find("canvas");
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const [x, y] = this.plot.value(event.clientX - box.left, event.clientY - box.top);
      const inside = x >= this.plot.view.x[0] && x <= this.plot.view.x[1] && y >= this.plot.view.y[0] && y <= this.plot.view.y[1];
      if (!inside) return;
      this.clicked = performance.now(); // a double click adds one point and leaves it
      this.add(this.rounded(x), this.roundedTarget(y));
    });
    canvas.addEventListener("pointermove", (event) => this.readout(event.clientX - canvas.getBoundingClientRect().left));
    canvas.addEventListener("pointerleave", () => { find("readout").textContent = ""; });
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("paste", (event) => {
      if (!event.defaultPrevented && !/^(INPUT|TEXTAREA)$/.test(event.target.nodeName)) this.pasted(event);
    });
    new ResizeObserver(() => this.render({ moving: true })).observe(find("plot"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.render({ moving: true }));
  }

  key(event) {
    const typing = event.target.matches?.("input:not([type=checkbox], [type=range]), textarea");
    if (typing) return;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") this.undo();
    else if (event.shiftKey && event.key === "Delete") this.clear();
    else return;
    event.preventDefault();
  }

  readout(left) {
    const [x] = this.plot.value(left, 0);
    const i = Math.round(((x - this.shown.x[0]) / (this.shown.x.at(-1) - this.shown.x[0])) * (PLACES - 1));
    if (!(i >= 0 && i < PLACES)) return;
    const [low, , middle, , high] = this.shown.bands.map((band) => fixedNumber(band[i], 3 * this.stepUp()));
    const where = `${this.about.x[0].name} ${shownInput(this.shown.x[i], this.kinds[0], this.step(0) * 5)}`;
    find("readout").textContent = `${where}: about ${middle}; nine of ten from ${low} to ${high}`;
  }

  async copy() {
    let done = "Copied.";
    try {
      await navigator.clipboard.writeText(find("python").textContent);
    } catch {
      getSelection().selectAllChildren(find("python"));
      done = "Selected: copy it with Ctrl+C.";
    }
    find("copied").textContent = done;
  }
}

/** The page, for those who read its numbers: `metaprior.predict(x, y, at)` is what it draws, `metaprior.notes(x, at)` what it says. */
function begin() {
  const given = JSON.parse(find("model").textContent);
  const model = read(given);
  const page = new Page(given.about, model);
  const predict = (x, y, at, { latent = false, about = page.numbers(), levels = LEVELS, count = DRAWS } = {}) => {
    const conditional = condition(model, contextOf(x, y), about);
    const posterior = conditional.at(pointsOf(at), latent);
    const each = (ask) => Array.from({ length: posterior.size }, (_, i) => ask(i));
    return {
      mean: each((i) => posterior.mean(i)),
      sd: each((i) => posterior.sd(i)),
      quantiles: levels.map((u) => each((i) => posterior.quantile(i, u))),
      evidence: conditional.evidence,
      plausibility: conditional.plausibility ?? null,
      shares: conditional.shares ?? null,
      draws: Array.from({ length: count }, (_, k) => Array.from(posterior.draw(new Random(k + 1)))),
    };
  };
  const notes = (x, at, about = page.numbers()) => notesOn(given.about, x, at, about);
  const tables = given.about.served === null ? null : new Tables(page, given.about.served);
  globalThis.metaprior = { page, predict, notes, tables };
}

begin();
