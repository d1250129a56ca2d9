"""The runner of documents itself."""

from __future__ import annotations

import traceback

import pytest

from tests.docs.blocks import python_text, run_document

DOCUMENT = """# Title

```python
from pullback.script import relax as R

size = 3


@R.function
def double(x: R.Tensor((size,), "float32")):
    return R.add(x, x)
```

```text
this is no = program (
```

- in a list:

  ```python
  answer = size * 14
  ```

```
neither is this (
```
"""


def test_blocks_share_a_namespace_and_keep_their_lines(tmp_path):
    path = tmp_path / "Some.md"
    path.write_text(DOCUMENT)
    module = run_document(path, tmp_path)
    assert module.answer == 42
    assert module.double.params[0].struct_info.shape == (3,)
    assert module.double.span.line == 10


def test_an_error_names_the_line_of_the_document(tmp_path):
    path = tmp_path / "wrong.md"
    path.write_text("text\n\n```python\nx = 1\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as caught:
        run_document(path, tmp_path)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 5


def test_an_open_block_is_an_error():
    with pytest.raises(ValueError, match="not closed"):
        python_text("```python\nx = 1\n")
