/* What is saved in this browser: one value in IndexedDB. */

function answer(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function within(mode, action) {
  const opening = indexedDB.open("digits", 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("kept");
  const database = await answer(opening);
  try {
    return await answer(action(database.transaction("kept", mode).objectStore("kept")));
  } finally {
    database.close();
  }
}

export const keep = (value) => within("readwrite", (store) => store.put(value, "last"));
export const kept = () => within("readonly", (store) => store.get("last"));
