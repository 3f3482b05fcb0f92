// The model as the page holds it, and the two things that are asked of it: contexts and points.

/** The model that was told: its arrays are views of the numbers, and stand where they are referred to. */
function read({ said: told, numbers, integration }) {
  Object.assign(RULES, integration);
  const bytes = Uint8Array.from(atob(numbers), (c) => c.charCodeAt(0)).buffer;
  const made = new Map();
  const fill = (node) => {
    if (node === null || typeof node !== "object") return node;
    if (Array.isArray(node)) return node.some((one) => typeof one === "object") ? node.map(fill) : node;
    if ("at" in node && "shape" in node) {
      const key = `${node.at} ${node.shape}`;
      if (!made.has(key)) {
        const count = node.shape.reduce((a, b) => a * b, 1);
        const values = node.single
          ? Float64Array.from(new Float32Array(bytes, node.at, count))
          : new Float64Array(bytes, node.at, count);
        made.set(key, { shape: node.shape, values });
      }
      return made.get(key);
    }
    return Object.fromEntries(Object.entries(node).map(([name, value]) => [name, fill(value)]));
  };
  return fill(told);
}

const pointsOf = (rows) => ({ n: rows.length, x: Float64Array.from(rows.flat()) });

const contextOf = (x, y) => ({ n: x.length, x: Float64Array.from(x.flat()), y: Float64Array.from(y.flat()) });
