/* A training step of each library: SGD on the mean cross-entropy of one batch. A side is a function that makes a step and
 * returns its loss. */
import { transposed } from "./data.mjs";

async function pullback(model, { x, labels }) {
  const module = await import(`./${model}/${model}.mjs`);
  const instance = await module[model[0].toUpperCase() + model.slice(1)].load();
  const targets = Uint8Array.from(labels);
  return async () => instance.step(x.values, targets);
}

/** In a worker, the messages included, as a page would use it. */
async function pullbackWorker(model, { x, labels }) {
  const module = await import(`./${model}/${model}.mjs`);
  const instance = await module[model[0].toUpperCase() + model.slice(1)].worker();
  const targets = Uint8Array.from(labels);
  return () => instance.step(x.values, targets);
}

function script(address) {
  return new Promise((resolve, reject) => {
    const element = document.createElement("script");
    element.src = address;
    element.onload = resolve;
    element.onerror = () => reject(new Error(`${address} cannot be loaded`));
    document.head.append(element);
  });
}

async function tfjs(model, { x, weights, labels, rate }) {
  const packages = "node_modules/@tensorflow";
  await script(`${packages}/tfjs/dist/tf.min.js`);
  await script(`${packages}/tfjs-backend-wasm/dist/tf-backend-wasm.min.js`);
  const { tf } = globalThis;
  tf.wasm.setWasmPaths(`${packages}/tfjs-backend-wasm/dist/`);
  if (!(await tf.setBackend("wasm"))) throw new Error("there is no backend wasm");
  await tf.ready();
  const { dense, conv2d, maxPooling2d, flatten, permute } = tf.layers;
  const relu = "relu";
  const layers =
    model === "mlp"
      ? [dense({ units: 128, activation: relu, inputShape: [784] }), dense({ units: 128, activation: relu })]
      : [
          conv2d({ filters: 6, kernelSize: 5, padding: "same", activation: relu, inputShape: [28, 28, 1] }),
          maxPooling2d({ poolSize: 2 }),
          conv2d({ filters: 16, kernelSize: 5, activation: relu }),
          maxPooling2d({ poolSize: 2 }),
          permute({ dims: [3, 1, 2] }), // channels come first in the weights that follow
          flatten(),
          dense({ units: 120, activation: relu }),
          dense({ units: 84, activation: relu }),
        ];
  const network = tf.sequential({ layers: [...layers, dense({ units: 10, activation: "softmax" })] });
  network.setWeights(
    weights.map((weight) => {
      const tensor = tf.tensor(weight.values, weight.shape);
      return weight.shape.length === 4 ? tensor.transpose([2, 3, 1, 0]) : weight.shape.length === 2 ? tensor.transpose() : tensor;
    }),
  );
  network.compile({ optimizer: tf.train.sgd(rate), loss: "categoricalCrossentropy" });
  const input = tf.tensor(x.values, model === "mlp" ? [labels.length, 784] : [labels.length, 28, 28, 1]);
  const targets = tf.oneHot(tf.tensor1d(labels, "int32"), 10);
  return () => network.trainOnBatch(input, targets);
}

async function jaxjs(model, { x, weights, labels, rate }) {
  const { numpy: np, nn, lax, jit, valueAndGrad, init, defaultDevice } = await import(
    "./node_modules/@jax-js/jax/dist/index.js"
  );
  await init("wasm");
  defaultDevice("wasm");
  const array = ({ values, shape }) => np.array(values.slice()).reshape(shape);
  const pool = (h) => lax.reduceWindow(h, np.max, [2, 2], [2, 2]);
  const mlp = (p, h) => {
    h = nn.relu(np.dot(h, p[0]).add(p[1]));
    h = nn.relu(np.dot(h, p[2]).add(p[3]));
    return np.dot(h, p[4]).add(p[5]);
  };
  const lenet = (p, h) => {
    h = pool(nn.relu(lax.convGeneralDilated(h, p[0], [1, 1], [[2, 2], [2, 2]]).add(p[1])));
    h = pool(nn.relu(lax.convGeneralDilated(h, p[2], [1, 1], "VALID").add(p[3]))).reshape([labels.length, 400]);
    h = nn.relu(np.dot(h, p[4]).add(p[5]));
    h = nn.relu(np.dot(h, p[6]).add(p[7]));
    return np.dot(h, p[8]).add(p[9]);
  };
  const network = model === "mlp" ? mlp : lenet;
  let parameters = weights.map((weight, i) => {
    if (weight.shape.length === 2) return array(transposed(weight));
    const isOfConvolution = weight.shape.length === 1 && weights[i - 1].shape.length === 4;
    return array(isOfConvolution ? { ...weight, shape: [weight.shape[0], 1, 1] } : weight);
  });
  const input = array(x);
  const targets = nn.oneHot(np.array(labels, { dtype: np.int32 }), 10);
  const loss = (p, rows, wanted) =>
    nn.logSoftmax(network(p, rows)).mul(wanted).sum().mul(-1 / labels.length);
  const step = jit((p, rows, wanted) => {
    const [value, gradients] = valueAndGrad(loss)(p.map((a) => a.ref), rows, wanted);
    return [value, p.map((a, i) => a.sub(gradients[i].mul(rate)))];
  });
  return async () => {
    let value;
    [value, parameters] = step(parameters, input.ref, targets.ref);
    const [found] = await value.data();
    await Promise.all(parameters.map((a) => a.blockUntilReady?.()));
    return found;
  };
}

export const SIDES = { pullback, "pullback worker": pullbackWorker, tfjs, "jax-js": jaxjs };
