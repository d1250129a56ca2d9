/* Pictures: the curve of losses, and single digits. */

const MOST = 400; // losses that are drawn

export function drawPixels(canvas, pixels, side) {
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  const image = context.createImageData(side, side);
  pixels.forEach((value, i) => image.data.set([255 * value, 255 * value, 255 * value, 255], 4 * i));
  context.putImageData(image, 0, 0);
}

/** The last losses, thin, and a running mean of them. */
export function drawCurve(canvas, losses) {
  const density = devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  if (canvas.width !== Math.round(width * density)) canvas.width = Math.round(width * density);
  if (canvas.height !== Math.round(height * density)) canvas.height = Math.round(height * density);
  const context = canvas.getContext("2d");
  context.setTransform(density, 0, 0, density, 0, 0);
  context.clearRect(0, 0, width, height);
  const style = getComputedStyle(canvas);
  const colour = (name) => style.getPropertyValue(name).trim();
  const shown = losses.slice(-MOST);
  const most = ceiling(Math.max(...shown, 0.1));
  const [left, bottom] = [34, height - 8];
  const x = (i) => left + (i * (width - left - 4)) / Math.max(shown.length - 1, 1);
  const y = (loss) => bottom - (loss / most) * (bottom - 8);

  context.font = "12px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of [0, most / 2, most]) {
    context.fillStyle = colour("--soft");
    context.fillText(String(Number(tick.toPrecision(2))), left - 8, y(tick));
    context.fillStyle = colour("--line");
    context.fillRect(left, y(tick), width - left, 1);
  }
  line(context, shown, x, y, colour("--line"), 1.5);
  line(context, smooth(shown), x, y, colour("--accent"), 2);
}

/** 1, 2 or 5 times a power of ten. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((step) => step * power >= value);
}

function smooth(values) {
  let mean = values[0];
  return values.map((value) => (mean += 0.15 * (value - mean)));
}

function line(context, values, x, y, colour, width) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.lineJoin = "round";
  context.beginPath();
  values.forEach((value, i) => context.lineTo(x(i), y(value)));
  context.stroke();
}
