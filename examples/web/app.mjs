/* The page: drawings become rows of 28 × 28 numbers, and the network, in a worker, learns them. */
import { Digits } from "./dist/digits.mjs";
import { keep, kept } from "./store.mjs";
import { centred, shifted, SIDE } from "./pixels.mjs";
import { drawCurve, drawPixels } from "./draw.mjs";

const PIXELS = SIDE * SIDE;
const COPIES = 4; // of each drawing, each moved a little
const EPOCHS = 6; // of a lesson
const STEPS = 40; // of a lesson, at least
const AT_ONCE = 96; // digits of others in a lesson

const find = (id) => document.getElementById(id);
const pad = find("pad");
const pen = pad.getContext("2d", { willReadFrequently: true });

let model; // a DigitsWorker
let others = { pixels: new Float32Array(), labels: new Uint8Array() };
let drawings = []; // {pixels, label, guess}
let losses = [];
let lesson; // the AbortController of the run that goes on

// ---- drawing ---------------------------------------------------------------------------------------------------------

let isEmpty = true;

function clear() {
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, pad.width, pad.height);
  isEmpty = true;
  find("hint").textContent = "Draw a digit with the mouse or a finger.";
  showGuess();
}

function place(event) {
  const box = pad.getBoundingClientRect();
  return [((event.clientX - box.left) * pad.width) / box.width, ((event.clientY - box.top) * pad.height) / box.height];
}

function stroke(from, to) {
  pen.strokeStyle = "#fff";
  pen.lineWidth = 26;
  pen.lineCap = pen.lineJoin = "round";
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
  isEmpty = false;
}

let last; // where the pen is down

pad.addEventListener("pointerdown", (event) => {
  event.preventDefault();
  pad.setPointerCapture(event.pointerId);
  last = place(event);
  stroke(last, last);
});
pad.addEventListener("pointermove", (event) => {
  if (!last) return;
  const here = place(event);
  stroke(last, here);
  last = here;
  guessSoon();
});
for (const kind of ["pointerup", "pointercancel"])
  pad.addEventListener(kind, () => {
    if (!last) return;
    last = undefined;
    guessSoon();
  });

const drawn = () => centred(pen.getImageData(0, 0, pad.width, pad.height));

// ---- guessing --------------------------------------------------------------------------------------------------------

const bars = Array.from({ length: 10 }, (_, digit) => {
  const item = document.createElement("li");
  item.innerHTML = `<span>${digit}</span><span class="track"><span class="bar"></span></span><span class="share"></span>`;
  find("bars").append(item);
  return item;
});

function softmax(scores) {
  const most = Math.max(...scores);
  const powers = Array.from(scores, (score) => Math.exp(score - most));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / sum);
}

const largest = (values) => values.indexOf(Math.max(...values));

function showGuess(shares) {
  const best = shares ? largest(shares) : -1;
  bars.forEach((item, digit) => {
    const share = shares ? shares[digit] : 0;
    item.classList.toggle("best", digit === best);
    item.querySelector(".bar").style.width = `${100 * share}%`;
    item.querySelector(".share").textContent = shares ? `${(100 * share).toFixed(1)}%` : "";
  });
  find("guess").textContent = shares ? best : "";
  if (shares) find("hint").textContent = `It looks like a ${best}. Which digit is it?`;
}

let isGuessing = false;
let isAsked = false;

/** The network's opinion of what is drawn; one question at a time, the last one always answered. */
async function guessSoon() {
  isAsked = true;
  if (isGuessing || !model) return;
  isGuessing = true;
  while (isAsked) {
    isAsked = false;
    if (!isEmpty) {
      const shares = softmax(await model.predict(drawn()));
      if (!isEmpty) showGuess(shares);
    }
  }
  isGuessing = false;
}

// ---- learning --------------------------------------------------------------------------------------------------------

for (let digit = 0; digit < 10; digit++) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = digit;
  button.disabled = true;
  button.addEventListener("click", () => attempt(() => teach(digit)));
  find("labels").append(button);
}
document.addEventListener("keydown", (event) => {
  if (/^[0-9]$/.test(event.key) && !event.ctrlKey && !event.metaKey && !event.altKey)
    find("labels").children[Number(event.key)].click();
});

async function teach(label) {
  if (isEmpty) return say("Draw a digit first.");
  drawings.push({ pixels: drawn(), label });
  clear();
  showGallery();
  await learn();
}

/** Copies of the visitor's digits, moved a little, and some of others. */
function rowsOfLesson() {
  const copies = Math.max(COPIES, Math.ceil(Digits.batch / drawings.length));
  const count = find("others").checked ? Math.min(AT_ONCE, others.labels.length) : 0;
  const input = new Float32Array((copies * drawings.length + count) * PIXELS);
  const targets = new Uint8Array(input.length / PIXELS);
  let row = 0;
  const add = (pixels, label) => {
    input.set(pixels, row * PIXELS);
    targets[row++] = label;
  };
  const move = () => Math.floor(Math.random() * 5) - 2;
  for (const { pixels, label } of drawings)
    for (let copy = 0; copy < copies; copy++) add(copy ? shifted(pixels, move(), move()) : pixels, label);
  for (let i = 0; i < count; i++) {
    const other = Math.floor(Math.random() * others.labels.length);
    add(others.pixels.subarray(other * PIXELS, (other + 1) * PIXELS), others.labels[other]);
  }
  return { input, targets };
}

async function learn() {
  if (lesson) lesson.abort(); // the new digit belongs to the next lesson
  while (lesson) await lesson.done;
  lesson = new AbortController();
  const { promise, resolve } = ending();
  lesson.done = promise;
  find("learn").textContent = "Stop";
  say("Learning …");
  let report;
  try {
    const rows = rowsOfLesson();
    const began = performance.now();
    const { steps } = await model.run({
      ...rows,
      steps: Math.max(STEPS, EPOCHS * Math.floor(rows.targets.length / Digits.batch)),
      signal: lesson.signal,
      progress: ({ epochEnded, loss }) => {
        if (epochEnded) return;
        losses.push(loss);
        showLossSoon();
      },
    });
    const each = steps ? ((performance.now() - began) / steps).toFixed(2) : 0;
    report = `Learnt in ${steps} steps of ${Digits.batch} digits, ${each} ms each.`;
  } finally {
    lesson = undefined;
    resolve();
    find("learn").textContent = "Learn again";
  }
  await showState();
  say(report);
}

function ending() {
  let resolve;
  const promise = new Promise((found) => (resolve = found));
  return { promise, resolve };
}

let isDue = false;

function showLossSoon() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    showLoss();
  });
}

function showLoss() {
  const some = losses.slice(-12);
  const mean = some.reduce((a, b) => a + b, 0) / some.length;
  find("loss").textContent = some.length ? mean.toFixed(3) : "–";
  drawCurve(find("curve"), losses);
}

/** What the network takes the drawings for, and what there is to do. */
async function showState() {
  if (drawings.length) {
    const input = new Float32Array(drawings.length * PIXELS);
    drawings.forEach(({ pixels }, i) => input.set(pixels, i * PIXELS));
    const scores = await model.predict(input);
    drawings.forEach((one, i) => (one.guess = largest(Array.from(scores.subarray(10 * i, 10 * i + 10)))));
  }
  find("steps").textContent = (await model.steps).toLocaleString("en");
  showLoss();
  showGallery();
  guessSoon();
}

function showGallery() {
  const items = drawings.map(({ pixels, label, guess }) => {
    const item = document.createElement("li");
    const isRight = guess === label;
    item.className = isRight ? "right" : "wrong";
    const picture = document.createElement("canvas");
    drawPixels(picture, pixels, SIDE);
    item.append(picture, guess === undefined ? `${label}` : isRight ? `${label}` : `${label}, not ${guess}`);
    return item;
  });
  find("gallery").replaceChildren(...items);
  const right = drawings.filter(({ label, guess }) => label === guess).length;
  find("accuracy").textContent = drawings.length ? `${right} of ${drawings.length}` : "–";
  find("empty").hidden = drawings.length > 0;
  for (const id of ["learn", "save"]) find(id).disabled = !drawings.length;
}

// ---- saving ----------------------------------------------------------------------------------------------------------

async function save() {
  const checkpoint = await model.save();
  await keep({ checkpoint, drawings, losses: losses.slice(-2000) });
  find("restore").disabled = false;
  say(`Saved in this browser: ${drawings.length} digits, and a checkpoint of ${checkpoint.length.toLocaleString("en")} bytes.`);
}

async function restore() {
  const found = await kept();
  if (!found) return say("Nothing is saved yet.");
  await stop();
  await model.restore(found.checkpoint);
  ({ drawings, losses } = found);
  await showState();
  say(`Restored ${drawings.length} digits and what was learnt of them.`);
}

async function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([await model.save()]));
  link.download = "digits.safetensors";
  link.click();
  URL.revokeObjectURL(link.href);
  say("digits.safetensors is a checkpoint: trainer.load reads it.");
}

async function stop() {
  lesson?.abort();
  while (lesson) await lesson.done;
}

/** The network as it was exported, or as it was before it had seen any digit. */
async function startOver(isTrained) {
  await stop();
  if (isTrained) await model.reset();
  else await model.restore(await bytesOf("dist/untrained.safetensors"));
  find("others").checked = isTrained;
  [drawings, losses] = [[], []];
  clear();
  await showState();
  say(isTrained ? "The network knows digits of others." : "The network knows nothing: all that it learns is yours.");
}

// ---- the rest --------------------------------------------------------------------------------------------------------

function say(text, isBad = false) {
  find("status").textContent = text;
  find("status").classList.toggle("bad", isBad);
}

async function attempt(action) {
  try {
    await action();
  } catch (error) {
    say(error.message, true);
  }
}

async function bytesOf(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address} cannot be fetched: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

const ACTIONS = {
  clear,
  save,
  restore,
  download,
  learn: () => (lesson ? stop() : learn()),
  scratch: () => startOver(false),
  again: () => startOver(true),
};
for (const [id, action] of Object.entries(ACTIONS)) find(id).addEventListener("click", () => attempt(action));
addEventListener("resize", showLossSoon);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showLossSoon);

async function start() {
  clear();
  showLoss();
  model = await Digits.worker();
  const [pixels, labels] = await Promise.all([bytesOf("dist/pixels.bin"), bytesOf("dist/labels.bin")]);
  others = { pixels: Float32Array.from(pixels, (value) => value / 255), labels };
  for (const button of document.querySelectorAll("button")) button.disabled = false;
  find("restore").disabled = !(await kept().catch(() => undefined));
  await showState();
  say("Ready.");
  if ("serviceWorker" in navigator) await navigator.serviceWorker.register("offline.js");
}

attempt(start);
