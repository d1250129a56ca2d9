/* The service worker: pages come from the server where there is one, and from what was kept of it where there is none. */

const NAME = "digits-1";
const FILES = [
  "./", "index.html", "style.css", "app.mjs", "pixels.mjs", "draw.mjs", "store.mjs", "dist/digits.mjs",
  "dist/digits.worker.mjs", "dist/digits.wasm", "dist/digits.relaxed.wasm", "dist/pixels.bin", "dist/labels.bin",
  "dist/untrained.safetensors",
];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(NAME).then((cache) => cache.addAll(FILES)).then(() => skipWaiting()));
});
addEventListener("activate", (event) => event.waitUntil(clients.claim()));

async function answer(request) {
  const cache = await caches.open(NAME);
  try {
    const response = await fetch(request);
    if (response.ok) await cache.put(request, response.clone());
    return response;
  } catch (error) {
    const found = await cache.match(request, { ignoreSearch: true });
    if (found) return found;
    throw error;
  }
}

addEventListener("fetch", (event) => {
  if (event.request.method === "GET" && event.request.url.startsWith(registration.scope))
    event.respondWith(answer(event.request));
});
