// What a prior says of points on their own: its mean, its noise, and the features that covariances follow from.

/** A function of points (n rows of d numbers), as n rows of `width` numbers. */
function valuesOf(node, x, n, d) {
  if (node.kind === "network") return networkAt(node, x, n, d);
  if (node.kind === "basis") return times(basisAt(node.basis, x, n, d), node.times, n);
  if (node.kind === "curve") return times(curveAt(node.curve, x, n, d), node.times, n);
  if (node.kind === "constant") return { width: 1, values: new Float64Array(n).fill(node.value) };
  if (node.kind === "inputs") return { width: d, values: node.lengths ? x.map((v, i) => v / node.lengths[i % d]) : x };
  if (node.kind === "linear") return linearAt(node, x, n, d);
  throw new Error(`no function ${node.kind}`);
}

function times(found, matrix, n) {
  const [q, r] = matrix.shape;
  return { width: r, values: product(found, matrix.values, n, q, r) };
}

function linearAt(node, x, n, d) {
  const p = node.bias.length;
  const values = new Float64Array(n * p);
  for (let i = 0; i < n; i++) {
    for (let c = 0; c < p; c++) {
      let sum = node.bias[c];
      if (node.weights.length) for (let k = 0; k < d; k++) sum += node.weights[c][k] * x[i * d + k];
      values[i * p + c] = sum;
    }
  }
  return { width: p, values };
}

const ACTIVATIONS = {
  sigmoid: (v) => 1 / (1 + Math.exp(-v)),
  tanh: Math.tanh,
  relu: (v) => Math.max(v, 0),
};

/** What comes out of each layer of a network, before the next activation. */
function layersAt(layers, activation, x, n, d) {
  const act = ACTIVATIONS[activation];
  const found = [];
  let [signal, width] = [x, d];
  layers.forEach(({ weight, bias }, l) => {
    const outputs = bias.values.length;
    const out = new Float64Array(n * outputs);
    const W = weight.values;
    for (let i = 0; i < n; i++) {
      for (let c = 0; c < outputs; c++) {
        let sum = bias.values[c];
        for (let k = 0; k < width; k++) sum += W[c * width + k] * signal[i * width + k];
        out[i * outputs + c] = sum;
      }
    }
    found.push(out);
    signal = l < layers.length - 1 ? out.map(act) : out;
    width = outputs;
  });
  return found;
}

function networkAt(node, x, n, d) {
  const values = layersAt(node.layers, node.activation, x, n, d).at(-1);
  const width = node.layers.at(-1).bias.values.length;
  return { width, values: node.factor ? values.map((v) => v * node.factor) : values };
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** A basis of functions, as n rows of their values; beyond its domain each keeps its value at the edge. */
function basisAt(basis, x, n, d) {
  if (basis.kind === "tensor") {
    const [one, two] = [basis.first, basis.second].map((part, k) =>
      basisAt(part, Float64Array.from({ length: n }, (_, i) => x[i * d + k]), n, 1));
    const [q, r] = [one.length / n, two.length / n];
    const out = new Float64Array(n * q * r);
    for (let i = 0; i < n; i++)
      for (let a = 0; a < q; a++)
        for (let b = 0; b < r; b++) out[(i * q + a) * r + b] = one[i * q + a] * two[i * r + b];
    return out;
  }
  if (basis.kind === "additive") {
    const level = { width: 1, values: new Float64Array(n).fill(basis.level) };
    return sideBySide([level, ...basis.parts.map((part, k) =>
      valuesOf(part, Float64Array.from({ length: n }, (_, i) => x[i * d + k]), n, 1))], n).values;
  }
  const inside = Float64Array.from({ length: n }, (_, i) => clamp(x[i * d], basis.lower, basis.upper));
  const rows = { spline: splines, polynomial: polynomials, fourier: waves }[basis.kind];
  return rows(basis, inside, n);
}

/** B-splines by the recursion of Cox and de Boor, made orthonormal. */
function splines(basis, x, n) {
  const { knots: t, degree, whitening } = basis;
  const q = t.length - degree - 1;
  const plain = new Float64Array(n * q);
  for (let i = 0; i < n; i++) {
    let values = new Float64Array(t.length - 1);
    for (let k = 0; k < t.length - 1; k++) {
      const last = k >= t.length - degree - 2 && x[i] <= t[k + 1] && t[k] < t[k + 1];
      values[k] = t[k] <= x[i] && (x[i] < t[k + 1] || last) ? 1 : 0;
    }
    for (let k = 1; k <= degree; k++) {
      const next = new Float64Array(t.length - 1 - k);
      for (let j = 0; j < next.length; j++) {
        const rising = t[j + k] > t[j] ? (x[i] - t[j]) / (t[j + k] - t[j]) : 0;
        const falling = t[j + k + 1] > t[j + 1] ? (t[j + k + 1] - x[i]) / (t[j + k + 1] - t[j + 1]) : 0;
        next[j] = rising * values[j] + falling * values[j + 1];
      }
      values = next;
    }
    plain.set(values, i * q);
  }
  return product(plain, whitening.values, n, q, q);
}

/** Legendre's polynomials, by Bonnet's recursion. */
function polynomials({ lower, upper, size }, x, n) {
  const out = new Float64Array(n * size);
  for (let i = 0; i < n; i++) {
    const t = (2 * (x[i] - lower)) / (upper - lower) - 1;
    const values = [1, t];
    for (let k = 1; k < size - 1; k++) values.push(((2 * k + 1) * t * values[k] - k * values[k - 1]) / (k + 1));
    for (let k = 0; k < size; k++) out[i * size + k] = values[k] * Math.sqrt((2 * k + 1) / (upper - lower));
  }
  return out;
}

function waves({ lower, upper, size }, x, n) {
  const width = upper - lower;
  const out = new Float64Array(n * size);
  for (let i = 0; i < n; i++) {
    out[i * size] = 1 / Math.sqrt(width);
    for (let k = 1; k < size; k++) {
      const angle = ((2 * Math.PI * (x[i] - lower)) / width) * Math.ceil(k / 2);
      out[i * size + k] = (Math.SQRT2 * (k % 2 ? Math.sin(angle) : Math.cos(angle))) / Math.sqrt(width);
    }
  }
  return out;
}

/** The functions that the shared curve of a hierarchy is made of. */
function curveAt(curve, x, n, d) {
  const q = curve.centres.length;
  const K = new Float64Array(q * n);
  for (let j = 0; j < q; j++) {
    for (let i = 0; i < n; i++) {
      let squares = 0;
      for (let k = 0; k < d; k++) {
        const inside = clamp(x[i * d + k], curve.lower[k], curve.upper[k]);
        squares += ((curve.centres[j][k] - inside) / curve.lengths[k]) ** 2;
      }
      K[j * n + i] = SHAPES.matern(squares);
    }
  }
  solveLower(curve.root.values, q, K, n);
  const out = new Float64Array(n * (q + 1));
  for (let i = 0; i < n; i++) {
    out[i * (q + 1)] = curve.level;
    for (let j = 0; j < q; j++) out[i * (q + 1) + j + 1] = curve.deviation * K[j * n + i];
  }
  return out;
}

// Stationary kernels as functions of the squared distance, in lengthscales.
const SHAPES = {
  rbf: (squares) => Math.exp(-0.5 * squares),
  exponential: (squares) => Math.exp(-Math.sqrt(squares)),
  matern(squares) {
    const t = Math.sqrt(5 * squares);
    return (1 + t + (t * t) / 3) * Math.exp(-t);
  },
  matern_3(squares) {
    const t = Math.sqrt(3 * squares);
    return (1 + t) * Math.exp(-t);
  },
};

/** Several functions of the same n points as one. */
function sideBySide(parts, n) {
  const width = parts.reduce((sum, part) => sum + part.width, 0);
  const values = new Float64Array(n * width);
  for (let i = 0; i < n; i++) {
    let at = i * width;
    for (const part of parts) {
      values.set(part.values.subarray(i * part.width, (i + 1) * part.width), at);
      at += part.width;
    }
  }
  return { width, values };
}

/** Mean, noise and features of each point under a prior. */
function atPoints(prior, x, n, d) {
  const mean = valuesOf(prior.mean, x, n, d);
  const features = sideBySide(prior.kernel.features.map((node) => valuesOf(node, x, n, d)), n);
  const noise = noiseAt(prior.noise, x, n, d);
  return { n, mean: mean.values, outputs: mean.width, noise, features: features.values, width: features.width };
}

function noiseAt(noise, x, n, d) {
  if (noise.kind === "constant") return new Float64Array(n).fill(noise.value);
  const softplus = (v) => (v > 20 ? v : Math.log1p(Math.exp(v))); // as torch has it
  return networkAt(noise.network, x, n, d).values.map((v) => noise.floor + softplus(v + noise.raw));
}

/** The covariance between two sets of points, by their features. */
function covariance(kernel, one, two) {
  const { first, shape, length, variance } = kernel;
  const [form, q] = [SHAPES[shape], one.width];
  const K = new Float64Array(one.n * two.n);
  for (let i = 0; i < one.n; i++) {
    for (let j = 0; j < two.n; j++) {
      let sum = 0;
      for (let k = 0; k < first; k++) sum += one.features[i * q + k] * two.features[j * q + k];
      if (shape) {
        let squares = 0;
        for (let k = first; k < q; k++) squares += ((one.features[i * q + k] - two.features[j * q + k]) / length) ** 2;
        sum += variance * form(squares);
      }
      K[i * two.n + j] = sum;
    }
  }
  return K;
}

/** The variance at each point. */
function variances(kernel, at) {
  const found = new Float64Array(at.n).fill(kernel.shape ? kernel.variance : 0);
  for (let i = 0; i < at.n; i++)
    for (let k = 0; k < kernel.first; k++) found[i] += at.features[i * at.width + k] ** 2;
  return found;
}
