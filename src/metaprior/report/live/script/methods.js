// Methods, conditioned on what is known of one task: { evidence, shares?, at(points, latent) }.
//
// A context is { n, x, y }, points are { n, x }: x has n rows of d inputs, y n rows of p targets, in the user's units.
// `about` is what is known of the task as a whole. Points keep what a prior said of them: they are asked again and again.

const TOO_FAR = "These values are too far from all past ones to be computed with. Are they in the same units?";

function condition(node, context, about) {
  return CONDITIONED[node.kind](node, context, about);
}

const CONDITIONED = {
  prior: conditionPrior,
  mixture: conditionMixture,
  warped: conditionWarped,
  calibrated: conditionCalibrated,
  possible: conditionPossible,
  "per task": conditionPerTask,
  "single values": conditionSingle,
};

/** x in a prior's units, with what is known of the task as further inputs where the prior takes that in. */
function scaledInputs({ scaler, task_x: takes }, x, n, about) {
  const wide = scaler.x_shift.length;
  const own = n ? x.length / n : 0;
  const out = new Float64Array(n * wide);
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < wide; k++) {
      const value = k < own ? x[i * own + k] : takes ? about[k - own] : NaN;
      out[i * wide + k] = (value - scaler.x_shift[k]) / scaler.x_scale[k];
    }
  }
  return out;
}

function scaledTargets(scaler, y) {
  const p = scaler.y_shift.length;
  return Float64Array.from(y, (value, i) => (value - scaler.y_shift[i % p]) / scaler.y_scale[i % p]);
}

function said(node, points, about) {
  points.said ??= new Map();
  if (!points.said.has(node)) {
    const x = scaledInputs(node, points.x, points.n, about);
    points.said.set(node, atPoints(node, x, points.n, node.scaler.x_shift.length));
  }
  return points.said.get(node);
}

/** A Gaussian or Student-t process. */
function conditionPrior(node, context, about) {
  const { kernel, scaler, degrees } = node;
  const { n } = context;
  const p = scaler.y_shift.length;
  const z = atPoints(node, scaledInputs(node, context.x, n, about), n, scaler.x_shift.length);
  const y = scaledTargets(scaler, context.y);
  const residual = y.map((value, i) => value - z.mean[z.outputs === p ? i : Math.floor(i / p)]);
  const inFeatures = !kernel.shape && n > z.width && z.noise.every((v) => v > 0);
  const known = (inFeatures ? byFeatures : byPoints)(kernel, z, residual, p);
  const jacobian = -n * scaler.y_scale.reduce((sum, scale) => sum + Math.log(scale), 0);
  const widening = degrees === null ? 1 : (degrees - 2 + known.quadratic) / (degrees - 2 + n * p);
  const evidence = terms(known, n * p, p, degrees) + jacobian;

  function at(points, latent) {
    const there = said(node, points, about);
    const { shift, variance, cross } = known.at(there);
    const means = new Float64Array(points.n * p);
    const sds = new Float64Array(points.n * p);
    for (let i = 0; i < points.n; i++) {
      const total = Math.max(variance[i], 0) + (latent ? 0 : there.noise[i]);
      for (let c = 0; c < p; c++) {
        const mean = there.mean[i * there.outputs + (there.outputs === p ? c : 0)] + shift[i * p + c];
        means[i * p + c] = mean * scaler.y_scale[c] + scaler.y_shift[c];
        sds[i * p + c] = Math.sqrt(total * widening) * scaler.y_scale[c];
      }
    }
    let L = null;
    const draw = (random) => {
      L ??= drawFactor(known.covariance(there, cross), there, latent);
      const white = random.normals(points.n * p);
      const tail = degrees === null ? 1 : (degrees + n * p - 2) / random.chiSquared(degrees + n * p);
      const drawn = product(L, white, points.n, points.n, p);
      return drawn.map((v, i) => means[i] + v * Math.sqrt(widening * tail) * scaler.y_scale[i % p]);
    };
    if (degrees === null) return new Gaussian(means, sds, draw);
    return new Student(means, sds, degrees + n * p, draw);
  }

  return { evidence, at };
}

function drawFactor(C, there, latent) {
  let scale = 0;
  for (let i = 0; i < there.n; i++) {
    if (!latent) C[i * there.n + i] += there.noise[i];
    scale += C[i * there.n + i] / there.n;
  }
  // a draw of a smooth curve at many places: less than a thousandth of its deviation is added
  for (let i = 0; i < there.n; i++) C[i * there.n + i] += 1e-7 * scale + 1e-300;
  return factor(C, there.n, scale);
}

function terms({ quadratic, logdet }, count, p, degrees) {
  if (degrees === null) return -0.5 * (quadratic + p * logdet + count * LOG_2PI);
  const fit = -0.5 * (degrees + count) * Math.log1p(quadratic / (degrees - 2));
  const normaliser = lgamma((degrees + count) / 2) - lgamma(degrees / 2);
  return fit + normaliser - 0.5 * count * Math.log((degrees - 2) * Math.PI) - 0.5 * p * logdet;
}

/** A context by the covariance of its points: `A = L Lᵀ`. */
function byPoints(kernel, z, residual, p) {
  const { n } = z;
  const A = covariance(kernel, z, z);
  let scale = 0;
  for (let i = 0; i < n; i++) {
    A[i * n + i] += z.noise[i];
    scale += A[i * n + i] / n;
  }
  const L = n ? factor(A, n, scale) : new Float64Array(0);
  const w = solveLower(L, n, residual.slice(), p);
  let logdet = 0;
  for (let i = 0; i < n; i++) logdet += 2 * Math.log(L[i * n + i]);
  const quadratic = w.reduce((sum, v) => sum + v * v, 0);

  function at(there) {
    const V = solveLower(L, n, covariance(kernel, z, there), there.n);
    const variance = variances(kernel, there);
    const shift = new Float64Array(there.n * p);
    for (let j = 0; j < n; j++) {
      for (let i = 0; i < there.n; i++) {
        const v = V[j * there.n + i];
        variance[i] -= v * v;
        for (let c = 0; c < p; c++) shift[i * p + c] += v * w[j * p + c];
      }
    }
    return { shift, variance, cross: V };
  }

  function covarianceAt(there, V) {
    const C = covariance(kernel, there, there);
    const k = there.n;
    for (let j = 0; j < n; j++)
      for (let a = 0; a < k; a++)
        for (let b = 0; b < k; b++) C[a * k + b] -= V[j * k + a] * V[j * k + b];
    return C;
  }

  return { quadratic, logdet, at, covariance: covarianceAt };
}

/** A context of more points than its kernel has features: by the posterior of their weights. */
function byFeatures(kernel, z, residual, p) {
  const { n, width: r } = z;
  const M = new Float64Array(r * r);
  const pull = new Float64Array(r * p);
  let logNoise = 0;
  for (let i = 0; i < n; i++) {
    logNoise += Math.log(z.noise[i]);
    for (let a = 0; a < r; a++) {
      const weighed = z.features[i * r + a] / z.noise[i];
      for (let b = 0; b < r; b++) M[a * r + b] += weighed * z.features[i * r + b];
      for (let c = 0; c < p; c++) pull[a * p + c] += weighed * residual[i * p + c];
    }
  }
  let scale = 0;
  for (let a = 0; a < r; a++) {
    M[a * r + a] += 1;
    scale += M[a * r + a] / r;
  }
  const L = factor(M, r, scale);
  const u = solveUpper(L, r, solveLower(L, r, pull, p), p);
  const fitted = product(z.features, u, n, r, p);
  let quadratic = u.reduce((sum, v) => sum + v * v, 0);
  for (let i = 0; i < n * p; i++) quadratic += (residual[i] - fitted[i]) ** 2 / z.noise[Math.floor(i / p)];
  let logdet = logNoise;
  for (let a = 0; a < r; a++) logdet += 2 * Math.log(L[a * r + a]);

  function at(there) {
    const V = new Float64Array(r * there.n);
    for (let i = 0; i < there.n; i++) for (let a = 0; a < r; a++) V[a * there.n + i] = there.features[i * r + a];
    solveLower(L, r, V, there.n);
    const variance = new Float64Array(there.n);
    for (let a = 0; a < r; a++) for (let i = 0; i < there.n; i++) variance[i] += V[a * there.n + i] ** 2;
    return { shift: product(there.features, u, there.n, r, p), variance, cross: V };
  }

  function covarianceAt(there, V) {
    const k = there.n;
    const C = new Float64Array(k * k);
    for (let a = 0; a < r; a++)
      for (let i = 0; i < k; i++) for (let j = 0; j < k; j++) C[i * k + j] += V[a * k + i] * V[a * k + j];
    return C;
  }

  return { quadratic, logdet, at, covariance: covarianceAt };
}

/** Several methods as one; by evidence, where the context says how much each of them has a say. */
function conditionMixture(node, context, about) {
  const members = node.members.map((member) => condition(member, context, about));
  const whole = members.every((member) => member.evidence !== null);
  const joint = members.map((member, c) => node.log_shares[c] + (member.evidence ?? 0));
  const evidence = whole ? logSumExp(joint) : null;
  if (node.by_evidence && !Number.isFinite(evidence)) throw new Refused(TOO_FAR);
  let logs = node.by_evidence ? joint.map((value) => value - evidence) : node.log_shares;
  if (node.unlikely) {
    const kept = logs.map((value) => (value > Math.log(node.unlikely) ? value : -Infinity));
    logs = kept.map((value) => value - logSumExp(kept));
  }
  const weights = logs.map(Math.exp);
  const asked = weights.map((weight) => weight > 1e-12);
  const at = (points, latent) =>
    new Mixture(
      members.filter((_, c) => asked[c]).map((member) => member.at(points, latent)),
      weights.filter((_, c) => asked[c]),
    );
  const names = node.names ?? null;
  const shares = names && names.map((name, c) => ({ name, weight: weights[c], inside: members[c].shares }));
  return { evidence, at, shares: shares ?? null };
}

function conditionWarped(node, context, about) {
  const warp = (node.made ??= new Warp(node.warp));
  const p = warp.unit.length;
  const wrong = context.y.find((y) => !warp.allowed(y));
  if (wrong !== undefined) throw new Refused(`This model is of values above 0, and ${wrong} is not.`);
  const y = Float64Array.from(context.y, (value, i) => warp.at(value, i % p));
  const inner = condition(node.method, { ...context, y }, about);
  const slopes = context.y.reduce((sum, value, i) => sum + warp.logSlope(value, i % p), 0);
  const evidence = inner.evidence === null ? null : inner.evidence + slopes;
  return { evidence, shares: inner.shares, at: (points, latent) => new Warped(inner.at(points, latent), warp, p) };
}

function conditionCalibrated(node, context, about) {
  const inner = condition(node.method, context, about);
  const at = (points, latent) => new Calibrated(inner.at(points, latent), node);
  const shares = inner.shares ?? (node.method.name ? [{ name: node.method.name, weight: 1, inside: null }] : null);
  return { evidence: inner.evidence, shares, at, plausibility: plausibility(node.usual, inner.evidence, context) };
}

/** How usual a context is: the share of held-out ones of similar size that the prior found less likely. */
function plausibility({ evidence, sizes, nearest }, found, context) {
  const count = context.y.length;
  if (!count || found === null || !sizes.values.length) return null;
  const near = sizes.values.map((size) => Math.abs(Math.log(size / count)));
  const limit = near.slice().sort()[Math.min(nearest, near.length) - 1];
  let [close, lower] = [0, 0];
  near.forEach((distance, k) => {
    if (distance > limit) return;
    close += 1;
    if (evidence.values[k] < found / count) lower += 1;
  });
  return (1 + lower) / (1 + close);
}

function conditionPossible(node, context, about) {
  const inner = condition(node.method, context, about);
  const at = (points, latent) =>
    new Possible(inner.at(points, latent), node.ends, latent ? node.whole.map(() => false) : node.whole);
  return { ...inner, at };
}

/** A level and an RBF kernel that the context alone decides, among those of a grid. */
function conditionPerTask(node, context, about) {
  const p = node.scaler.y_shift.length;
  node.priors ??= node.choices.map(([length, variance, noise]) => ({
    kind: "prior",
    scaler: node.scaler,
    task_x: false,
    degrees: null,
    mean: { kind: "linear", weights: [], bias: Array(p).fill(0) },
    noise: { kind: "constant", value: noise },
    kernel: {
      features: [{ kind: "constant", value: 1 }, { kind: "inputs" }], first: 1, shape: "rbf", length, variance,
    },
  }));
  const found = node.priors.map((prior) => conditionPrior(prior, context, about));
  const joint = found.map((one, k) => node.belief[k] + one.evidence);
  const best = joint.indexOf(Math.max(...joint));
  return { evidence: logSumExp(joint), at: found[best].at, shares: null };
}

/** Methods that predict a single value, with a variance for contexts of this size. */
function conditionSingle(node, context, about) {
  const { sizes, variances: known } = node.variance;
  const sds = known[0].map((_, c) => Math.sqrt(between(Math.log1p(context.n), sizes.map(Math.log1p), known.map((row) => row[c]))));
  const p = sds.length;
  const values = SINGLE[node.values.kind](node.values, context, p);
  const at = (points) => {
    const means = values(points);
    const deviations = means.map((_, i) => sds[i % p]);
    return new Gaussian(means, deviations, (random) =>
      random.normals(means.length).map((z, i) => means[i] + z * deviations[i]));
  };
  return { evidence: null, at, shares: null };
}

/** Linear interpolation, constant beyond. */
function between(x, xs, ys) {
  if (x <= xs[0]) return ys[0];
  const k = xs.findIndex((value) => x <= value);
  if (k < 0) return ys.at(-1);
  return ys[k - 1] + ((ys[k] - ys[k - 1]) * (x - xs[k - 1])) / (xs[k] - xs[k - 1]);
}

const SINGLE = {
  "last value": ({ without }, context, p) => (points) => {
    const order = Array.from({ length: context.n }, (_, i) => i).sort((a, b) => context.x[a] - context.x[b] || a - b);
    const out = new Float64Array(points.n * p);
    for (let i = 0; i < points.n; i++) {
      const before = order.filter((k) => context.x[k] <= points.x[i]).at(-1) ?? order[0];
      for (let c = 0; c < p; c++) out[i * p + c] = context.n ? context.y[before * p + c] : without[c];
    }
    return out;
  },
  "context mean": ({ without }, context, p) => (points) => {
    const mean = without.map((value, c) => {
      if (!context.n) return value;
      let sum = 0;
      for (let i = 0; i < context.n; i++) sum += context.y[i * p + c];
      return sum / context.n;
    });
    return Float64Array.from({ length: points.n * p }, (_, i) => mean[i % p]);
  },
  network: ({ network, scaler }, context, p) => (points) => networkValues(network.layers, network, scaler, points, p),
  "adapted network": (node, context, p) => {
    const layers = adapted(node, context, p);
    return (points) => networkValues(layers, node.network, node.scaler, points, p);
  },
};

function networkValues(layers, { activation }, scaler, points, p) {
  const x = scaledInputs({ scaler }, points.x, points.n, []);
  const found = layersAt(layers, activation, x, points.n, scaler.x_shift.length).at(-1);
  return found.map((value, i) => value * scaler.y_scale[i % p] + scaler.y_shift[i % p]);
}

/** A network after a few steps down the squared error of the context, each weight matrix and bias at its own rate. */
function adapted({ network, scaler, steps, rates }, context, p) {
  const { n } = context;
  const d = scaler.x_shift.length;
  const x = scaledInputs({ scaler }, context.x, n, []);
  const y = scaledTargets(scaler, context.y);
  let layers = network.layers;
  for (let step = 0; n && step < steps; step++) {
    const out = layersAt(layers, network.activation, x, n, d);
    let along = out.at(-1).map((value, i) => (2 * (value - y[i])) / (n * p));
    const next = [];
    for (let l = layers.length - 1; l >= 0; l--) {
      const { weight, bias } = layers[l];
      const [outputs, inputs] = weight.shape;
      const signal = l ? out[l - 1].map(ACTIVATIONS[network.activation]) : x;
      const W = weight.values.slice();
      const b = bias.values.slice();
      const back = new Float64Array(n * inputs);
      for (let i = 0; i < n; i++) {
        for (let c = 0; c < outputs; c++) {
          const slope = along[i * outputs + c];
          b[c] -= rates[2 * l + 1] * slope;
          for (let k = 0; k < inputs; k++) {
            back[i * inputs + k] += slope * weight.values[c * inputs + k];
            W[c * inputs + k] -= rates[2 * l] * slope * signal[i * inputs + k];
          }
        }
      }
      next.unshift({ weight: { ...weight, values: W }, bias: { ...bias, values: b } });
      if (l) along = back.map((value, i) => value * slopeOf(network.activation, signal[i], out[l - 1][i]));
    }
    layers = next;
  }
  return layers;
}

const slopeOf = (activation, value, given) =>
  ({ sigmoid: value * (1 - value), tanh: 1 - value * value, relu: given > 0 ? 1 : 0 })[activation];
