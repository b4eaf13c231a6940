"""The settings of docs/editors.md in the editors themselves, without a screen. NVIM and EMACS name executables."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from places import ROOT

pytest.importorskip("pygls", reason="needs pygls")
pytestmark = pytest.mark.slow

NVIM = os.environ.get("NVIM") or shutil.which("nvim")
EMACS = os.environ.get("EMACS") or shutil.which("emacs")
PAGE = (ROOT / "docs" / "editors.md").read_text(encoding="utf-8")
SPEC = """rewardspec: 1
name: bad
components:
  correct: {values: [0, 1]}
  length: {expr: correct * 2, when: correct >= 2}
advantage: gdpo
"""
PROBE_NVIM = """
vim.wait(60000, function() return #vim.diagnostic.get(0) > 0 end, 50)
local function ask(method)
  local at = { textDocument = vim.lsp.util.make_text_document_params(), position = { line = 5, character = 13 } }
  for _, answer in pairs(vim.lsp.buf_request_sync(0, method, at, 60000)) do return answer.result end
end
local names = {}
local proposed = ask("textDocument/completion")
for _, item in ipairs(proposed.items or proposed) do table.insert(names, item.label) end
local found = vim.diagnostic.get(0)[1]
local hover = ask("textDocument/hover").contents.value
io.stdout:write(vim.json.encode({ code = found.code, line = found.lnum, hover = hover, names = names }))
vim.cmd("qa!")
"""
PROBE_EMACS = """
(setq eglot-sync-connect 60)
(find-file "bad.yaml")
(apply #'eglot (append (eglot--guess-contact) nil))
(flymake-mode 1)
(let ((end (+ (float-time) 60)))
  (while (and (not (flymake-diagnostics)) (< (float-time) end)) (flymake-start) (accept-process-output nil 0.3)))
(goto-char (point-min)) (forward-line 5) (move-to-column 13)
(let ((hover (jsonrpc-request (eglot-current-server) :textDocument/hover (eglot--TextDocumentPositionParams)))
      (found (car (flymake-diagnostics)))
      (names (all-completions "" (nth 2 (eglot-completion-at-point)))))
  (princ (json-encode (list (cons 'code (flymake-diagnostic-text found))
                            (cons 'line (1- (line-number-at-pos (flymake-diagnostic-beg found))))
                            (cons 'hover (plist-get (plist-get hover :contents) :value))
                            (cons 'names (mapcar #'substring-no-properties names))))))
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a spec that has a mistake, and `rewardspec` in `bin`."""
    (tmp_path / "bin").mkdir()
    server = tmp_path / "bin" / "rewardspec"
    server.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m rewardspec "$@"\n')
    server.chmod(0o755)
    (tmp_path / "bad.yaml").write_text(SPEC)
    return tmp_path


def block(kind, number=0):
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.S)[number]


def said(command, folder):
    """What an editor prints, as JSON."""
    environment = {
        **os.environ,
        "HOME": str(folder),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=180)
    start = done.stdout.find("{")
    assert start >= 0, done.stdout + done.stderr
    return json.loads(done.stdout[start:])


def check(found):
    assert "gate-never-opens" in found["code"] and found["line"] == 4
    assert "decoupled" in found["hover"] and {"grpo", "gdpo", "rloo"} <= {*found["names"]}


@pytest.mark.skipif(NVIM is None, reason="no Neovim")
@pytest.mark.parametrize("number", [0, 1], ids=["0.11", "0.10"])
def test_in_neovim(number, folder):
    version = subprocess.run([NVIM, "--version"], capture_output=True, text=True).stdout
    if tuple(map(int, re.search(r"v(\d+)\.(\d+)", version).groups())) < (0, 11 - number):
        pytest.skip(f"{version.splitlines()[0]} is too old for these settings")
    (folder / "init.lua").write_text(block("lua", number))
    (folder / "probe.lua").write_text(PROBE_NVIM)
    check(said([NVIM, "--headless", "-u", "init.lua", "bad.yaml", "-c", "luafile probe.lua"], folder))


@pytest.mark.skipif(EMACS is None, reason="no Emacs")
def test_in_emacs(folder):
    head = "(require 'package) (package-initialize)\n"
    needs = '(kill-emacs (if (and (require \'eglot nil t) (locate-library "yaml-mode")) 0 3))'
    if subprocess.run([EMACS, "--batch", "--eval", f"(progn {head} {needs})"], capture_output=True).returncode:
        pytest.skip("Emacs has no eglot, or no yaml-mode")
    (folder / "probe.el").write_text(f"{head}{block('elisp')}(require 'eglot)\n{PROBE_EMACS}")
    check(said([EMACS, "--batch", "-l", "probe.el"], folder))
