"""Shows the page of this folder: python examples/web/serve.py, then open the address that it prints.

Its headers isolate the page (COOP, COEP): its clock is finer then, and shared memory would be allowed.
"""

import argparse
import contextlib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """One for this machine alone."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Handler, directory=str(folder)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    if not (options.folder / "dist" / "digits.wasm").is_file():
        parser.error(f"{options.folder / 'dist'} has no digits.wasm: run train.py first")
    with server(options.folder, options.port) as serving:
        print(f"http://localhost:{serving.server_port}/", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            serving.serve_forever()


if __name__ == "__main__":
    main()
