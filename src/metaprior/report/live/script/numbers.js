// Special functions, small matrices and random numbers. Matrices are Float64Arrays, row after row.

const LOG_2PI = Math.log(2 * Math.PI);

// log(e^(z²) erfc(z) / t) in Chebyshev polynomials of 2t − 1, with t = 2 / (2 + z)
const ERFC = [
  -0.6513268598908547, 0.6419697923564902, 0.01947647320418578, -0.0095615147868087, -0.0009465953444820032,
  0.00036683949785262164, 4.2523324806897333e-5, -2.0278578112710428e-5, -1.624290004617715e-6, 1.3036558353955327e-6,
  1.5626441905272595e-8, -8.523809633952376e-8, 6.529054987484638e-9, 5.059342787246712e-9, -9.913633440318859e-10,
  -2.2736590201084264e-10, 9.646878584056188e-11, 2.3930391648376706e-12, -6.884744632115025e-12,
  8.928677632760877e-13, 3.14950918984453e-13, -1.14316994403091e-13, 1.9518031897079105e-15, 5.660033928054924e-15,
];

function erfcOfPositive(z) {
  const t = 2 / (2 + z);
  const twice = 4 * t - 2;
  let here = 0;
  let before = 0;
  for (let k = ERFC.length - 1; k > 0; k--) {
    const next = twice * here - before + ERFC[k];
    before = here;
    here = next;
  }
  return t * Math.exp(-z * z + 0.5 * twice * here - before + ERFC[0]);
}

/** The probability that a standard normal variable is below z. */
function ndtr(z) {
  const tail = 0.5 * erfcOfPositive(Math.abs(z) * Math.SQRT1_2);
  return z > 0 ? 1 - tail : tail;
}

/** The z that a standard normal variable is below with probability u. */
function ndtri(u) {
  if (!(u > 0)) return -Infinity;
  if (!(u < 1)) return Infinity;
  const small = Math.min(u, 1 - u);
  const t = Math.sqrt(-2 * Math.log(small));
  // Hastings' approximation, then two steps of Halley's method on the logarithm of the tail
  let z = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  for (let k = 0; k < 3; k++) {
    const tail = 0.5 * erfcOfPositive(z * Math.SQRT1_2);
    const hazard = Math.exp(-0.5 * (z * z + LOG_2PI)) / tail;
    const gap = Math.log(tail / small);
    const step = gap / hazard;
    z += step / (1 + 0.5 * step * (hazard - z));
    if (Math.abs(step) < 1e-15 * (1 + Math.abs(z))) break;
  }
  return u < 0.5 ? -z : z;
}

/** The logarithm of the gamma function above 0 (Lanczos). */
function lgamma(x) {
  if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - lgamma(1 - x);
  const parts = [
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
  ];
  let sum = 0.99999999999980993;
  parts.forEach((part, k) => { sum += part / (x + k); });
  const t = x + 6.5;
  return 0.5 * LOG_2PI + (x - 0.5) * Math.log(t) - t + Math.log(sum);
}

/** The regularised incomplete beta function, by its continued fraction. */
function betainc(a, b, x, logBeta) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - betainc(b, a, 1 - x, logBeta);
  const tiny = 1e-300;
  let c = 1;
  let d = 1 - ((a + b) * x) / (a + 1);
  d = 1 / (Math.abs(d) < tiny ? tiny : d);
  let fraction = d;
  for (let m = 1; m < 500; m++) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 + even * d;
    c = 1 + even / c;
    d = 1 / (Math.abs(d) < tiny ? tiny : d);
    c = Math.abs(c) < tiny ? tiny : c;
    fraction *= d * c;
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 + odd * d;
    c = 1 + odd / c;
    d = 1 / (Math.abs(d) < tiny ? tiny : d);
    c = Math.abs(c) < tiny ? tiny : c;
    fraction *= d * c;
    if (Math.abs(d * c - 1) < 1e-15) break;
  }
  return (Math.exp(a * Math.log(x) + b * Math.log1p(-x) - logBeta) * fraction) / a;
}

/** Student's t distribution with some degrees of freedom. */
class StudentT {
  constructor(degrees) {
    this.degrees = degrees;
    this.logBeta = lgamma(degrees / 2) + lgamma(0.5) - lgamma((degrees + 1) / 2);
    this.known = new Map();
  }

  cdf(t) {
    const tail = 0.5 * betainc(this.degrees / 2, 0.5, this.degrees / (this.degrees + t * t), this.logBeta);
    return t > 0 ? 1 - tail : tail;
  }

  quantile(u) {
    let found = this.known.get(u);
    if (found === undefined) {
      found = this.search(u);
      if (this.known.size < 2000) this.known.set(u, found);
    }
    return found;
  }

  search(u) {
    if (u === 0.5) return 0;
    const small = Math.min(u, 1 - u);
    let low = 0;
    let high = Math.max(1, -ndtri(small));
    while (this.cdf(-high) > small) { low = high; high *= 2; }
    const found = rootOf((t) => ndtri(small) - ndtri(this.cdf(-t)), low, high);
    return u < 0.5 ? -found : found;
  }
}

/** Where a rising function is 0, between two places that it lies between (Chandrupatla 1997). */
function rootOf(gap, lower, upper) {
  let [a, b] = [lower, upper];
  let [fa, fb] = [gap(a), gap(b)];
  if (fa === 0) return a;
  if (fb === 0) return b;
  let share = 0.5;
  for (let step = 0; step < 100; step++) {
    const x = a + share * (b - a);
    const fx = gap(x);
    let [c, fc] = [b, fb];
    if (Math.sign(fx) === Math.sign(fa)) [c, fc] = [a, fa];
    else [b, fb] = [a, fa];
    [a, fa] = [x, fx];
    const best = Math.abs(fa) < Math.abs(fb) ? a : b;
    const width = Math.abs(b - a);
    const least = 4 * Number.EPSILON * Math.abs(best) + 1e-308;
    if (width <= least || Math.abs(fa) <= 1e-11) return best;
    const [across, rise] = [(a - b) / (c - b), (fa - fb) / (fc - fb)];
    const inverse = (fa / (fb - fa)) * (fc / (fb - fc)) + (((c - a) / (b - a)) * (fa / (fc - fa)) * fb) / (fc - fb);
    const trusted = rise * rise < across && (1 - rise) ** 2 < 1 - across && Number.isFinite(inverse);
    const edge = Math.min((0.5 * least) / width, 0.5);
    share = Math.max(Math.min(trusted ? inverse : 0.5, 1 - edge), edge);
  }
  return Math.abs(fa) < Math.abs(fb) ? a : b;
}

/** L with L Lᵀ = A, or null where A has none. */
function cholesky(A, n) {
  const L = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = A[i * n + j];
      for (let k = 0; k < j; k++) sum -= L[i * n + k] * L[j * n + k];
      if (i > j) L[i * n + j] = sum / L[j * n + j];
      else if (sum > 0 && Number.isFinite(sum)) L[i * n + i] = Math.sqrt(sum);
      else return null;
    }
  }
  return L;
}

/** The factor of A, with jitter on its diagonal (relative to a scale) where it has none without. */
function factor(A, n, scale) {
  for (const jitter of [0, 1e-10, 1e-8, 1e-6]) {
    const B = jitter ? A.slice() : A;
    if (jitter) for (let i = 0; i < n; i++) B[i * n + i] += jitter * scale;
    const L = cholesky(B, n);
    if (L) return L;
  }
  throw new Refused("These points cannot all be right: their covariance has no factor. Remove one of two that agree.");
}

/** L⁻¹ B for B of n rows and k columns, in the place of B. */
function solveLower(L, n, B, k) {
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < i; j++) {
      const l = L[i * n + j];
      if (l !== 0) for (let c = 0; c < k; c++) B[i * k + c] -= l * B[j * k + c];
    }
    for (let c = 0; c < k; c++) B[i * k + c] /= L[i * n + i];
  }
  return B;
}

/** L⁻ᵀ B, in the place of B. */
function solveUpper(L, n, B, k) {
  for (let i = n - 1; i >= 0; i--) {
    for (let c = 0; c < k; c++) B[i * k + c] /= L[i * n + i];
    for (let j = 0; j < i; j++) {
      const l = L[i * n + j];
      for (let c = 0; c < k; c++) B[j * k + c] -= l * B[i * k + c];
    }
  }
  return B;
}

/** A B, of shapes n × k and k × m. */
function product(A, B, n, k, m) {
  const out = new Float64Array(n * m);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < k; j++) {
      const a = A[i * k + j];
      for (let c = 0; c < m; c++) out[i * m + c] += a * B[j * m + c];
    }
  }
  return out;
}

function logSumExp(values) {
  const most = Math.max(...values);
  return most === -Infinity ? most : most + Math.log(values.reduce((sum, value) => sum + Math.exp(value - most), 0));
}

/** Random numbers that are the same for the same seed: a draw moves when a point does, and does not jump. */
class Random {
  constructor(seed) { this.state = (seed * 2654435761 + 12345) >>> 0; }

  uniform() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (((t ^ (t >>> 14)) >>> 0) + 0.5) / 4294967296;
  }

  normals(count) { return Float64Array.from({ length: count }, () => ndtri(this.uniform())); }

  /** A chi-squared variable of 2 degrees of freedom or more (Marsaglia and Tsang 2000). */
  chiSquared(degrees) {
    const d = degrees / 2 - 1 / 3;
    for (;;) {
      const x = ndtri(this.uniform());
      const v = (1 + x / Math.sqrt(9 * d)) ** 3;
      if (v > 0 && Math.log(this.uniform()) < 0.5 * x * x + d - d * v + d * Math.log(v)) return 2 * d * v;
    }
  }
}

/** What a person can put right, told where it happened. */
class Refused extends Error {}
