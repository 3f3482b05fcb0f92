// The picture: bands, the middle, possible curves, what was expected before, and axes, on one canvas.

const EDGE = { right: 14, top: 10, bottom: 46 };

const FONT = "13px system-ui, sans-serif";

class Plot {
  constructor(canvas) {
    this.canvas = canvas;
    this.view = { x: [0, 1], y: [0, 1] };
    this.size = canvas.getBoundingClientRect();
    this.left = 64; // of the picture: as much as its numbers take
  }

  /** Where a value lies in the picture, in pixels of the page. */
  place(x, y) {
    const { width, height } = this.size;
    return [
      this.left + ((x - this.view.x[0]) / (this.view.x[1] - this.view.x[0])) * (width - this.left - EDGE.right),
      height - EDGE.bottom - ((y - this.view.y[0]) / (this.view.y[1] - this.view.y[0])) * (height - EDGE.top - EDGE.bottom),
    ];
  }

  /** The value at a place. */
  value(left, top) {
    const { width, height } = this.size;
    return [
      this.view.x[0] + ((left - this.left) / (width - this.left - EDGE.right)) * (this.view.x[1] - this.view.x[0]),
      this.view.y[0] + ((height - EDGE.bottom - top) / (height - EDGE.top - EDGE.bottom)) * (this.view.y[1] - this.view.y[0]),
    ];
  }

  draw({ x, bands, prior, draws, labels, kind }) {
    this.size = this.canvas.getBoundingClientRect();
    const { width, height } = this.size;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    this.measure(pen, width, height);
    this.axes(pen, colour, width, height, labels, kind);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, EDGE.top, width - this.left - EDGE.right, height - EDGE.top - EDGE.bottom);
    pen.clip();
    this.area(pen, x, bands[0], bands[4], colour("nine"));
    this.area(pen, x, bands[1], bands[3], colour("half"));
    pen.setLineDash([5, 4]);
    [0, 2, 4].forEach((k) => this.line(pen, x, prior[k], colour("prior"), k === 2 ? 1.5 : 1));
    pen.setLineDash([]);
    draws.forEach((draw) => this.line(pen, draw.x, draw.y, colour("draw"), 1));
    this.line(pen, x, bands[2], colour("blue"), 3);
    pen.restore();
  }

  /** Room for the numbers beside the picture. */
  measure(pen, width, height) {
    pen.font = FONT;
    const { places, step } = this.upward(height);
    const widest = Math.max(...places.map((y) => pen.measureText(shownNumber(y, step)).width), 0);
    this.left = clamp(Math.ceil(widest) + 34, 48, 0.4 * width);
  }

  upward(height) { return ticks(...this.view.y, "number", Math.max(2, Math.min(height / 60, 8))); }

  /** As many places as there is room for their labels. */
  across(pen, width, kind) {
    for (let count = Math.max(2, Math.min(width / 60, 10)); ; count -= 1) {
      const found = ticks(...this.view.x, kind, count);
      const labels = found.places.map((x) => pen.measureText(shownInput(x, kind, found.step)).width + 14);
      if (count <= 2 || Math.max(...labels, 0) * labels.length < width - this.left) return found;
    }
  }

  path(pen, x, y, onward) {
    x.forEach((value, i) => {
      const [left, top] = this.place(value, y[i]);
      if (i || onward) pen.lineTo(left, top);
      else pen.moveTo(left, top);
    });
  }

  area(pen, x, low, high, colour) {
    pen.beginPath();
    this.path(pen, x, low, false);
    this.path(pen, [...x].reverse(), [...high].reverse(), true);
    pen.closePath();
    pen.fillStyle = colour;
    pen.fill();
  }

  line(pen, x, y, colour, width) {
    pen.beginPath();
    this.path(pen, x, y, false);
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.lineJoin = "round";
    pen.stroke();
  }

  axes(pen, colour, width, height, labels, kind) {
    pen.font = FONT;
    pen.fillStyle = colour("soft");
    pen.strokeStyle = colour("line");
    pen.lineWidth = 1;
    const [across, up] = [this.across(pen, width, kind), this.upward(height)];
    pen.beginPath();
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const x of across.places) {
      const [left] = this.place(x, 0);
      pen.moveTo(left, EDGE.top);
      pen.lineTo(left, height - EDGE.bottom);
      pen.fillText(shownInput(x, kind, across.step), left, height - EDGE.bottom + 6);
    }
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const y of up.places) {
      const [, top] = this.place(0, y);
      pen.moveTo(this.left, top);
      pen.lineTo(width - EDGE.right, top);
      pen.fillText(shownNumber(y, up.step), this.left - 6, top);
    }
    pen.stroke();
    pen.fillStyle = colour("ink");
    pen.textAlign = "center";
    pen.textBaseline = "bottom";
    pen.fillText(labels[0], (this.left + width - EDGE.right) / 2, height - 2, width - this.left - EDGE.right);
    pen.save();
    pen.translate(13, (EDGE.top + height - EDGE.bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "middle";
    pen.fillText(labels[1], 0, 0, height - EDGE.top - EDGE.bottom);
    pen.restore();
  }
}
