"""The page of examples/web in headless Chromium: a visitor draws digits, and the network learns them."""

from __future__ import annotations

import importlib.util
import math
import shutil
import threading

import pytest

from benchmarks.chromium import Page
from tests.deploy.tools import need_program, need_zig
from tests.examples.test_examples import ROOT, run

WEB = ROOT / "examples" / "web"
ZERO = [(0.5 + 0.2 * math.sin(t * math.pi / 10), 0.5 - 0.3 * math.cos(t * math.pi / 10)) for t in range(21)]
ONE = [(0.4, 0.3), (0.52, 0.16), (0.52, 0.84)]
SEVEN = [(0.28, 0.22), (0.5, 0.22), (0.72, 0.22), (0.6, 0.5), (0.45, 0.82)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the page with a network that was trained a little, and what ends the server."""
    need_program("chromium", "chromium-browser", "google-chrome")
    need_zig()
    folder = tmp_path_factory.mktemp("site") / "web"
    shutil.copytree(WEB, folder, ignore=shutil.ignore_patterns("dist", "__pycache__"))
    done = run(str(WEB / "train.py"), "--folder", str(folder / "dist"), "--epochs", "2", "--rows", "2000")
    assert done.returncode == 0, done.stderr
    spec = importlib.util.spec_from_file_location("serve", WEB / "serve.py")
    serve = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(serve)
    with serve.server(folder, 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}/", server.shutdown
        server.shutdown()


@pytest.fixture
def page(site, tmp_path):
    program = need_program("chromium", "chromium-browser", "google-chrome")
    with Page(program, tmp_path / "profile") as page:
        page.open(site[0])
        ready(page)
        yield page


def status(page: Page, begins: str) -> str:
    page.wait(f"document.querySelector('#status').textContent.startsWith({begins!r})")
    return page.text("#status")


def ready(page: Page) -> None:
    status(page, "Ready")


def teach(page: Page, points: list, label: int, count: int) -> None:
    """Draw a digit and say which it is; then there are ``count`` of them, and the network has learnt."""
    page.draw("#pad", points)
    page.wait("document.querySelector('#guess').textContent !== ''")
    click_to_learn(page, f"#labels button:nth-child({label + 1})")
    assert page.evaluate("document.querySelectorAll('#gallery li').length") == count


def click_to_learn(page: Page, button: str) -> None:
    """Until the steps of a lesson are shown, and it has ended."""
    before = page.text("#steps")
    page.click(button)
    page.wait(f"document.querySelector('#steps').textContent !== {before!r}")
    status(page, "Learnt")


def number(page: Page, selector: str) -> float:
    return float(page.text(selector).replace(",", ""))


def test_a_visitor_teaches_saves_and_restores(page, site):
    assert page.evaluate("crossOriginIsolated")
    steps = number(page, "#steps")
    for count, (points, label) in enumerate(((ZERO, 0), (ONE, 1), (SEVEN, 7)), 1):
        teach(page, points, label, count)
    click_to_learn(page, "#learn")
    assert page.text("#accuracy") == "3 of 3"
    assert 0 < number(page, "#loss") < 0.5
    learnt = number(page, "#steps")
    assert learnt >= steps + 4 * 40  # of four lessons
    shares = shares_of(page, SEVEN)
    assert max(shares) == shares[7] > 50 and sum(shares) == pytest.approx(100, abs=0.6)

    page.click("#save")
    assert "3 digits" in status(page, "Saved")
    page.open(site[0])
    ready(page)
    assert number(page, "#steps") == steps and page.text("#accuracy") == "–"
    page.click("#restore")
    status(page, "Restored 3 digits")
    assert number(page, "#steps") == learnt and page.text("#accuracy") == "3 of 3"
    assert shares_of(page, SEVEN) == shares
    assert page.problems == []


def shares_of(page: Page, points: list) -> list[float]:
    """The bars, in per cent, for a drawing that is cleared then."""
    page.draw("#pad", points)
    page.wait("document.querySelector('#guess').textContent !== ''")
    # The question of the last stroke is answered before that of the page's test.
    page.evaluate("new Promise((resolve) => setTimeout(resolve, 300))")
    shares = page.evaluate("[...document.querySelectorAll('.share')].map((e) => parseFloat(e.textContent))")
    page.click("#clear")
    return shares


def test_a_network_that_knows_nothing_learns_two_digits(page):
    page.click("#scratch")
    status(page, "The network knows nothing")
    assert number(page, "#steps") == 0
    assert not page.evaluate("document.querySelector('#others').checked")
    teach(page, ZERO, 0, 1)
    teach(page, ONE, 1, 2)
    for _ in range(2):
        click_to_learn(page, "#learn")
    page.wait("document.querySelector('#accuracy').textContent === '2 of 2'")
    page.click("#again")
    status(page, "The network knows digits")
    assert number(page, "#steps") > 0 and page.text("#accuracy") == "–"
    assert page.problems == []


def test_the_class_in_the_page_itself(page):
    """Without a worker, and with addresses that are relative to the page."""
    results = page.evaluate("""(async () => {
        const { Digits } = await import("./dist/digits.mjs"), results = [];
        for (const make of ["load", "worker"])
            for (const source of [undefined, "dist/digits.wasm", new URL("dist/digits.relaxed.wasm", location)]) {
                const model = await Digits[make](source);
                results.push(Array.from(await model.predict(new Float32Array(784).fill(0.5))));
                await model.close();
            }
        const told = ({ name, status, message }) => [name, status, message];
        for (const make of ["load", "worker"])
            results.push(await Digits[make]("dist/nowhere.wasm").catch(told));
        return results;
    })()""")
    assert len(results[0]) == 10 and results[0] != [0] * 10
    assert all(result == results[0] for result in (results[2], results[3], results[5]))  # with relaxed SIMD
    assert results[1] == results[4] == pytest.approx(results[0], rel=1e-4, abs=1e-5)
    for name, code, message in results[6:]:
        assert (name, code) == ("DigitsError", 8) and "nowhere.wasm cannot be fetched: 404" in message


def test_the_page_works_offline(page, site):
    page.wait("navigator.serviceWorker.controller !== null")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.offline()
    page.open(site[0])
    ready(page)
    page.problems.clear()
    teach(page, ONE, 1, 1)
    assert page.problems == []
