/* The batch and the weights of a model, as benchmarks/web.py has written them. */

export async function readData(model) {
  const [about, values] = await Promise.all([
    fetch(`${model}.json`).then((response) => response.json()),
    fetch(`${model}.bin`).then((response) => response.arrayBuffer()),
  ]);
  let offset = 0;
  const tensors = about.shapes.map((shape) => {
    const count = shape.reduce((a, b) => a * b, 1);
    const tensor = { shape, values: new Float32Array(values, offset, count) };
    offset += 4 * count;
    return tensor;
  });
  const [x, ...weights] = tensors;
  return { x, weights, labels: about.labels, rate: about.rate };
}

/** The transpose of a matrix. */
export function transposed({ shape: [rows, columns], values }) {
  const found = new Float32Array(values.length);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) found[j * rows + i] = values[i * columns + j];
  return { shape: [columns, rows], values: found };
}
