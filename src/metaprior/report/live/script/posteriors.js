// Distributions of values at points of one task. `i` counts values: point by point, and within a point output by output.
//
// Each has size, mean(i), sd(i), cdf(i, y), quantile(i, u), nodes(i, probabilities, weights, take), which calls
// take(value, weight) for values that stand for the distribution, and draw(random), all values together.

const FAR = 8; // normal scores beyond which a probability has no digits left
const RULES = {}; // where moments are integrated: as the page was given them

const normalDensity = (z) => Math.exp(-0.5 * (z * z + LOG_2PI));
const normalScore = (u) => clamp(ndtri(u), -FAR, FAR);

/** Mean and deviation from the values that stand for a distribution. */
function momentsOf(posterior, i, around) {
  let [unit, total, first, second] = [0, 0, 0, 0];
  const seen = [];
  posterior.nodes(i, RULES.probabilities, RULES.weights, (value, weight) => seen.push(value - around, weight));
  for (let k = 0; k < seen.length; k += 2) unit = Math.max(unit, Math.abs(seen[k]));
  unit = unit || 1;
  for (let k = 0; k < seen.length; k += 2) {
    const [gap, weight] = [seen[k] / unit, seen[k + 1]];
    total += weight;
    first += weight * gap;
    second += weight * gap * gap;
  }
  const shift = first / total;
  return [around + unit * shift, unit * Math.sqrt(Math.max(second / total - shift * shift, 0))];
}

class Distribution {
  /** Mean and deviation of each value, where they take some work: computed when they are asked for. */
  moments(i) {
    this.known ??= [];
    this.known[i] ??= this.computed(i);
    return this.known[i];
  }

  mean(i) { return this.moments(i)[0]; }

  sd(i) { return this.moments(i)[1]; }

  nodes(i, probabilities, weights, take) {
    probabilities.forEach((u, k) => take(this.quantile(i, u), weights[k]));
  }
}

class Gaussian extends Distribution {
  constructor(means, sds, draw) {
    super();
    Object.assign(this, { means, sds, draw, size: means.length, gaussian: true });
  }

  mean(i) { return this.means[i]; }

  sd(i) { return this.sds[i]; }

  cdf(i, y) {
    const gap = y - this.means[i];
    return this.sds[i] > 0 ? ndtr(gap / this.sds[i]) : (Math.sign(gap) + 1) / 2;
  }

  quantile(i, u) { return this.means[i] + ndtri(u) * this.sds[i]; }
}

class Student extends Distribution {
  /** scales: deviations times √((ν − 2) / ν). */
  constructor(means, sds, degrees, draw) {
    super();
    const scales = sds.map((sd) => sd * Math.sqrt((degrees - 2) / degrees));
    Object.assign(this, { means, sds, scales, draw, size: means.length, t: new StudentT(degrees) });
  }

  mean(i) { return this.means[i]; }

  sd(i) { return this.sds[i]; }

  cdf(i, y) {
    const gap = y - this.means[i];
    return this.scales[i] > 0 ? this.t.cdf(gap / this.scales[i]) : (Math.sign(gap) + 1) / 2;
  }

  quantile(i, u) { return this.means[i] + this.t.quantile(u) * this.scales[i]; }
}

/** `t = g(y)`, rising; beyond the range of the past values it goes on straight. */
class Warp {
  constructor({ name, unit, power, lower, upper }) {
    Object.assign(this, { name, unit, power, positive: ["log", "log-linear", "box-cox"].includes(name) });
    this.low = lower?.map((y, c) => this.end(y, c));
    this.high = upper?.map((y, c) => this.end(y, c));
  }

  end(y, c) { return { y, t: this.bent(y, c), slope: Math.exp(this.logBentSlope(y, c)) }; }

  allowed(y) { return !this.positive || this.low !== undefined || y > 0; }

  at(y, c) {
    const [low, high] = [this.low?.[c], this.high?.[c]];
    if (high && y > high.y) return high.t + (y - high.y) * high.slope;
    if (low && y < low.y) return low.t - (low.y - y) * low.slope;
    return this.bent(y, c);
  }

  inverse(t, c) {
    const [low, high] = [this.low?.[c], this.high?.[c]];
    if (high && t > high.t) return high.y + (t - high.t) / high.slope;
    if (low && t < low.t) return low.y - (low.t - t) / low.slope;
    return this.unbent(t, c);
  }

  logSlope(y, c) {
    const [low, high] = [this.low?.[c], this.high?.[c]];
    return this.logBentSlope(clamp(y, low ? low.y : -Infinity, high ? high.y : Infinity), c);
  }

  bent(y, c) {
    if (this.name === "identity") return y;
    if (this.positive) return powerOf(Math.log(y / this.unit[c]), this.power[c]);
    const t = powerOf(Math.log1p(Math.abs(y) / this.unit[c]), y >= 0 ? this.power[c] : 2 - this.power[c]);
    return y >= 0 ? t : -t;
  }

  unbent(t, c) {
    if (this.name === "identity") return t;
    if (this.positive) return this.unit[c] * Math.exp(logRoot(t, this.power[c]));
    const power = t >= 0 ? this.power[c] : 2 - this.power[c];
    return Math.sign(t) * this.unit[c] * Math.expm1(logRoot(Math.abs(t), power));
  }

  logBentSlope(y, c) {
    if (this.name === "identity") return 0;
    if (this.positive) return (this.power[c] - 1) * Math.log(y / this.unit[c]) - Math.log(this.unit[c]);
    const power = y >= 0 ? this.power[c] : 2 - this.power[c];
    return (power - 1) * Math.log1p(Math.abs(y) / this.unit[c]) - Math.log(this.unit[c]);
  }
}

const powerOf = (log, power) => (power > 1e-30 ? Math.expm1(power * log) / power : log);
const logRoot = (t, power) => (power > 1e-30 ? Math.log1p(Math.max(power * t, -1)) / power : t);

class Warped extends Distribution {
  constructor(inner, warp, outputs) {
    super();
    Object.assign(this, { inner, warp, outputs, size: inner.size });
  }

  computed(i) { return momentsOf(this, i, this.warp.inverse(this.inner.mean(i), i % this.outputs)); }

  cdf(i, y) {
    if (this.warp.allowed(y)) return this.inner.cdf(i, this.warp.at(y, i % this.outputs));
    if (y !== 0) return 0;
    return this.inner.cdf(i, this.warp.at(1e-300 * this.warp.unit[i % this.outputs], i % this.outputs));
  }

  quantile(i, u) { return this.warp.inverse(this.inner.quantile(i, u), i % this.outputs); }

  nodes(i, probabilities, weights, take) {
    this.inner.nodes(i, probabilities, weights, (t, weight) => take(this.warp.inverse(t, i % this.outputs), weight));
  }

  draw(random) { return this.inner.draw(random).map((t, i) => this.warp.inverse(t, i % this.outputs)); }
}

class Mixture extends Distribution {
  /** A mixture of mixtures is one mixture. */
  constructor(components, weights) {
    super();
    this.components = components;
    this.weights = weights;
    this.size = components[0].size;
    this.mixture = true;
    this.parts = [];
    components.forEach((one, c) => {
      if (!(weights[c] > 1e-12)) return;
      const inside = one.mixture ? one.parts : [{ posterior: one, weight: 1 }];
      inside.forEach((part) => this.parts.push({ posterior: part.posterior, weight: weights[c] * part.weight }));
    });
  }

  computed(i) {
    let [mean, spread] = [0, 0];
    for (const { posterior, weight } of this.parts) mean += weight * posterior.mean(i);
    for (const { posterior, weight } of this.parts)
      spread = Math.hypot(spread, Math.sqrt(weight) * Math.hypot(posterior.sd(i), posterior.mean(i) - mean));
    return [mean, spread];
  }

  cdf(i, y) {
    let sum = 0;
    for (const { posterior, weight } of this.parts) sum += weight * posterior.cdf(i, y);
    return Math.min(sum, 1);
  }

  quantile(i, u) {
    let [lower, upper] = [Infinity, -Infinity];
    for (const { posterior } of this.parts) {
      const q = posterior.quantile(i, u);
      lower = Math.min(lower, q);
      upper = Math.max(upper, q);
    }
    if (this.parts.length === 1 || lower === upper) return lower;
    const score = (v) => ndtri(clamp(v, 1e-300, 1 - 2 ** -53));
    const wanted = score(u);
    return rootOf((y) => score(this.cdf(i, y)) - wanted, lower, upper);
  }

  nodes(i, probabilities, weights, take) {
    for (const { posterior, weight } of this.parts)
      posterior.nodes(i, probabilities, weights, (value, share) => take(value, weight * share));
  }

  draw(random) {
    let left = random.uniform();
    const chosen = this.weights.findIndex((weight) => (left -= weight) < 0);
    return this.components[chosen < 0 ? this.weights.indexOf(Math.max(...this.weights)) : chosen].draw(random);
  }
}

/** An odd, rising map of normal scores: 0 to 0 and each point `here` to one `there`, straight in between. */
function straight(z, here, there) {
  const size = Math.abs(z);
  let k = 0;
  while (k < here.length - 1 && size >= here[k]) k++;
  const [x0, y0] = k ? [here[k - 1], there[k - 1]] : [0, 0];
  const slope = (there[k] - y0) / (here[k] - x0);
  return [Math.sign(z) * (y0 + slope * (size - x0)), slope];
}

/** Quantiles between known ones, by a cubic in the normal score with the slopes of parabolas; of heights, their asinh. */
class Quantiles {
  constructor(scores, heights) {
    Object.assign(this, { scores, heights });
    const last = scores.length - 1;
    const same = (k) => scores[k + 1] - scores[k] < 2e-3 && heights[k + 1] - heights[k] < 2e-3;
    this.slopes = scores.map((_, k) => {
      let [low, high] = [k, k]; // what is nearly equal is no neighbour
      while (low > 0 && same(low - 1)) low--;
      while (high < last && same(high)) high++;
      [low, high] = [Math.max(low - 1, 0), Math.min(high + 1, last)];
      const [before, after] = [scores[k] - scores[low], scores[high] - scores[k]];
      const [fall, climb] = [heights[k] - heights[low], heights[high] - heights[k]];
      const [left, right] = [fall / (before > 0 ? before : 1), climb / (after > 0 ? after : 1)];
      if (after <= 1e-3 * before || climb <= 1e-9 * after) return left;
      if (before <= 1e-3 * after || fall <= 1e-9 * before) return right;
      return (left * after + right * before) / (before + after);
    });
  }

  at(z) {
    let k = this.scores.findIndex((score) => score >= z);
    k = clamp(k < 0 ? this.scores.length : k, 1, this.scores.length - 1);
    const width = this.scores[k] - this.scores[k - 1];
    return this.within(k, clamp((z - this.scores[k - 1]) / (width > 0 ? width : 1), 0, 1));
  }

  /** The height at a share of the way from one known value to the next, number k. */
  within(k, t) {
    const [low, high] = [this.heights[k - 1], this.heights[k]];
    const bend = (this.scores[k] - this.scores[k - 1]) * ((1 - t) * this.slopes[k - 1] - t * this.slopes[k]);
    return clamp(low + t * t * (3 - 2 * t) * (high - low) + t * (1 - t) * bend, low, high);
  }
}

const partsOf = (one) => one.parts?.length ?? (one.inner ? partsOf(one.inner) : 1);

class Calibrated extends Distribution {
  constructor(inner, told) {
    super();
    Object.assign(this, { inner, told, size: inner.size, weights: inner.weights });
  }

  outward(z) { return straight(z, this.told.right, this.told.own)[0]; }

  probability(u) { return ndtr(straight(normalScore(u), this.told.own, this.told.right)[0]); }

  computed(i) {
    if (this.inner.gaussian) return [this.inner.mean(i), this.told.spread * this.inner.sd(i)];
    const [mean, sd] = this.inner.moments(i);
    const unit = sd > 0 ? sd : 1;
    let [shift, second] = [0, 0];
    this.quadrature(i, (gap, weight, before) => {
      shift += (weight - before) * gap;
      second += (weight - before) * gap * gap;
    });
    return [mean + unit * shift, unit * Math.sqrt(Math.max((sd / unit) ** 2 + second - shift * shift, 0))];
  }

  nodes(i, probabilities, weights, take) {
    if (this.inner.gaussian) return super.nodes(i, probabilities, weights, take);
    const [mean, sd] = this.inner.moments(i);
    return this.quadrature(i, (gap, weight) => take(mean + (sd > 0 ? sd : 1) * gap, weight));
  }

  /** Values, in deviations from the mean, with their weights: recalibrated, and as they were. */
  quadrature(i, take) {
    const [mean, sd] = this.inner.moments(i);
    const unit = sd > 0 ? sd : 1;
    const edges = RULES.edges.filter((_, k) => k % 2 === 0 || partsOf(this.inner) <= RULES.many_parts);
    const gaps = [];
    this.inner.nodes(i, edges.map(ndtr), edges, (value) => gaps.push((value - mean) / unit));
    gaps.sort((a, b) => a - b);
    let table = new Quantiles(
      gaps.map((gap) => clamp(ndtri(this.inner.cdf(i, mean + unit * gap)), -37, 8.3)), gaps.map(Math.asinh));
    const ends = [...new Set(this.told.own.map((z) => Math.min(z, FAR)))];
    const kinks = [...ends.map((z) => -z).reverse(), 0, ...ends];
    const points = table.scores.map((z, k) => [z, table.heights[k]]).concat(kinks.map((z) => [z, table.at(z)]));
    points.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let highest = -Infinity;
    table = new Quantiles(points.map(([z]) => z), points.map(([, a]) => (highest = Math.max(highest, a))));
    const [shares, weights] = RULES.between;
    for (let k = 1; k < points.length; k++) {
      const [low, high] = [table.scores[k - 1], table.scores[k]];
      if (low < -FAR || high > FAR) continue;
      const right = [low, high].map((z) => straight(z, this.told.own, this.told.right)[0]);
      shares.forEach((share, j) => take(
        Math.sinh(table.within(k, share)),
        weights[j] * (right[1] - right[0]) * normalDensity(right[0] + share * (right[1] - right[0])),
        weights[j] * (high - low) * normalDensity(low + share * (high - low))));
    }
  }

  cdf(i, y) { return this.probability(this.inner.cdf(i, y)); }

  quantile(i, u) { return this.moved(i, ndtri(u)); }

  moved(i, z) { return this.inner.quantile(i, ndtr(clamp(this.outward(z), -FAR, FAR))); }

  draw(random) { return this.inner.draw(random).map((y, i) => this.moved(i, normalScore(this.inner.cdf(i, y)))); }
}

/** Values that can be: cut at the ends of what is possible, and rounded where they are whole. */
class Possible extends Distribution {
  constructor(inner, ends, whole) {
    super();
    Object.assign(this, { inner, ends, whole, size: inner.size, weights: inner.weights });
    this.lower = ends.map(([low]) => low ?? -Infinity);
    this.upper = ends.map(([, high]) => high ?? Infinity);
  }

  computed(i) {
    const c = i % this.ends.length;
    const [low, high] = [this.lower[c], this.upper[c]];
    let [mean, sd] = [this.inner.mean(i), this.inner.sd(i)];
    const beyond = (low > -Infinity ? this.inner.cdf(i, low) : 0) + (high < Infinity ? 1 - this.inner.cdf(i, high) : 0);
    if (beyond > 1e-9) {
      [mean, sd] = momentsOf(this, i, clamp(mean, low, high));
      mean = clamp(mean, low, high);
    }
    if (!this.whole[c]) return [mean, sd];
    const [first, last] = [-6.5, 6.5].map((z) => this.recorded(this.inner.quantile(i, ndtr(z)), c));
    if (last - first + 1 > 200) return [mean, sd];
    let [total, sum, squares] = [0, 0, 0];
    const shares = [];
    for (let y = first; y <= last; y++) shares.push([y, this.cdf(i, y) - this.cdf(i, y - 1)]);
    shares.forEach(([y, share]) => { total += share; sum += share * y; });
    shares.forEach(([y, share]) => { squares += share * (y - sum / total) ** 2; });
    return [sum / total, Math.sqrt(squares / total)];
  }

  nodes(i, probabilities, weights, take) {
    const c = i % this.ends.length;
    this.inner.nodes(i, probabilities, weights, (value, weight) =>
      take(clamp(value, this.lower[c], this.upper[c]), weight));
  }

  cdf(i, y) {
    const c = i % this.ends.length;
    if (y < this.lower[c]) return 0;
    if (y >= this.upper[c]) return 1;
    return this.inner.cdf(i, this.whole[c] ? Math.floor(y) + 0.5 : y);
  }

  quantile(i, u) { return this.recorded(this.inner.quantile(i, u), i % this.ends.length); }

  draw(random) { return this.inner.draw(random).map((y, i) => this.recorded(y, i % this.ends.length)); }

  /** As it would be written down. */
  recorded(y, c) { return clamp(this.whole[c] ? Math.ceil(y - 0.5) : y, this.lower[c], this.upper[c]); }
}
