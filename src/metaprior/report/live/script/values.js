// Inputs as people write them: numbers, dates (days since 1970) and times of day (parts of a day).

const DAY = 86400000;

/** An input as text, with as many digits as it takes to tell places apart that lie so far from each other. */
function shownInput(value, kind, apart = 0) {
  if (kind === "clock") return clockOf(value);
  if (kind !== "date") return shownNumber(value, apart);
  const whole = Math.round(value * 86400) / 86400;
  const text = new Date(Math.floor(whole) * DAY).toISOString().slice(0, 10);
  return Math.abs(whole - Math.round(whole)) < 1e-6 || apart >= 1 ? text : `${text}T${clockOf(whole)}`;
}

function clockOf(value) {
  const seconds = Math.round((((value % 1) + 1) % 1) * 86400);
  const part = (count) => String(Math.floor(count) % 60).padStart(2, "0");
  const text = `${String(Math.floor(seconds / 3600) % 24).padStart(2, "0")}:${part(seconds / 60)}`;
  return seconds % 60 ? `${text}:${part(seconds)}` : text;
}

/** A number with some digits: four, or as many as a step between such numbers takes. */
function shownNumber(value, apart = 0) {
  if (!Number.isFinite(value)) return String(value);
  if (!apart) return String(Number(value.toPrecision(4)));
  if (value === 0) return "0";
  const digits = Math.floor(Math.log10(Math.abs(value))) + 1 + Math.ceil(-Math.log10(apart) + 0.5);
  return digits < 1 ? "0" : String(Number(value.toPrecision(Math.min(digits, 17))));
}

/** A number with as many decimals as others of its column, which lie so far apart. */
function fixedNumber(value, apart) {
  const decimals = Math.ceil(-Math.log10(apart));
  if (!Number.isFinite(value) || decimals > 12 || apart > 1e7) return shownNumber(value, apart);
  return value.toFixed(Math.max(decimals, 0));
}

/** What a person typed as an input; told in place where it is none. */
function readInput(text, kind, name) {
  const word = text.trim();
  if (kind === "number") return readNumber(word, name);
  const clock = /^([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?$/;
  const partOf = (match) => (Number(match[1]) * 3600 + Number(match[2]) * 60 + Number(match[3] ?? 0)) / 86400;
  if (kind === "clock") {
    const match = clock.exec(word);
    if (match) return partOf(match);
    throw new Refused(`${name}: “${word}” is no time of day, such as 13:45.`);
  }
  const [, day, time] = /^(\d{4}-\d\d-\d\d)(?:[T ](.+))?$/.exec(word) ?? [];
  const found = day === undefined ? NaN : Date.parse(`${day}T00:00:00Z`) / DAY;
  const match = time === undefined ? null : clock.exec(time);
  const exists = !Number.isNaN(found) && new Date(found * DAY).toISOString().startsWith(day); // no 31st of February
  if (!exists || (time !== undefined && !match)) {
    throw new Refused(`${name}: “${word}” is no date, such as 2020-03-28 or 2020-03-28T22:00.`);
  }
  return found + (match ? partOf(match) : 0);
}

function readNumber(text, name) {
  const word = text.trim();
  const value = /^[-+\d.eE]+$/.test(word) ? Number(word) : NaN;
  if (!Number.isFinite(value)) throw new Refused(`${name}: “${word}” is no number.`);
  return value;
}

/** Round places on an axis, about so many of them. */
function ticks(low, high, kind, count) {
  if (kind === "date" && (high - low) / count > 14) return months(low, high, count);
  const seconds = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200].map((count) => count / 86400);
  const steps = kind === "number" ? null : [...seconds, 1, 2, 7, 14];
  const wanted = (high - low) / count;
  const ten = 10 ** Math.floor(Math.log10(wanted));
  const step = steps ? steps.find((one) => one >= wanted) : ten * [1, 2, 5, 10].find((one) => one * ten >= wanted);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return { places: found, step };
}

function months(low, high, count) {
  const wanted = (high - low) / count / 30.44;
  const step = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600].find((one) => one >= wanted) ?? 1200;
  const places = [];
  const first = new Date(low * DAY);
  for (let month = Math.floor((first.getUTCFullYear() * 12 + first.getUTCMonth()) / step) * step; ; month += step) {
    const place = Date.UTC(Math.floor(month / 12), month % 12, 1) / DAY;
    if (place > high) break;
    if (place >= low) places.push(place);
  }
  return { places, step: 28 * step };
}

/** Notes on what lies outside the past ranges, in Python's words: known points, those asked about, the task as a whole. */
function notesOn({ x, task_x }, known, asked, numbers) {
  const beyond = ([low, high], values) => values.filter((value) => value < low || value > high).length;
  const note = (outside, all, said) => (outside ? [`${outside.toLocaleString("en")} of ${all.toLocaleString("en")} ${said}`] : []);
  const inputs = [known, asked].flatMap((points, which) => x.flatMap(({ range, said }, k) => (
    note(beyond(range, points.map((point) => point[k])), points.length, said[which]))));
  let place = 0;
  const task = task_x.flatMap(({ levels, range, said }) => {
    const value = numbers[place];
    place += levels.length || 1;
    return levels.length ? [] : note(beyond(range, [value]), 1, said);
  });
  return [...inputs, ...task];
}
