"""Completion scripts for bash, zsh and fish, and their installation."""

from __future__ import annotations

import os
from pathlib import Path

from recsys_cli.errors import ConfigError

SHELL, LINE = "_RECSYS_SHELL", "_RECSYS_LINE"
"""Environment variables of a completion request: the shell, and its line up to the cursor."""
# No space after a word ending in = . or /: the user continues it.
_BASH = """\
_recsys_completion() {
    mapfile -t COMPREPLY < <(_RECSYS_SHELL=bash _RECSYS_LINE="${COMP_LINE:0:COMP_POINT}" "$1")
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace
    return 0
}
complete -o default -F _recsys_completion recsys
"""
_ZSH = """\
#compdef recsys
_recsys_completion() {
    local -a found
    found=("${(@f)$(_RECSYS_SHELL=zsh _RECSYS_LINE="${(j: :)words[1,CURRENT]}" "$words[1]")}")
    if [[ -z $found[1] ]]; then
        _files
        return
    fi
    local -a open=(${(M)found:#*[=./]}) whole=(${found:#*[=./]})
    (( $#open )) && compadd -S '' -a open
    (( $#whole )) && compadd -a whole
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _recsys_completion "$@"
else
    compdef _recsys_completion recsys
fi
"""
_FISH = """\
complete --command recsys --no-files --arguments '(env _RECSYS_SHELL=fish _RECSYS_LINE=(commandline -cp) recsys)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_SCRIPT_PATHS = {
    "bash": ".bash_completions/recsys.sh",
    "zsh": ".zfunc/_recsys",
    "fish": ".config/fish/completions/recsys.fish",
}
_STARTUP_FILES = {
    "bash": (".bashrc", "source ~/.bash_completions/recsys.sh"),
    "zsh": (".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
}
"""Startup file and line to add, for shells without a completion folder."""


def current() -> str:
    """Return the name of the calling shell."""
    from shellingham import ShellDetectionFailure, detect_shell  # a dependency of typer

    try:
        name = detect_shell()[0]
    except (ShellDetectionFailure, OSError):
        name = Path(os.environ.get("SHELL", "")).name
    if name not in SCRIPTS:
        raise ConfigError(
            f"no completion for the shell {name or 'unknown'!r}", hint=f"supported shells: {', '.join(SCRIPTS)}"
        )
    return name


def install(shell: str) -> Path:
    """Install the completion script of a shell and return its path."""
    home = Path.home()
    path = home / _SCRIPT_PATHS[shell]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SCRIPTS[shell], encoding="utf-8")
    if shell in _STARTUP_FILES:
        name, line = _STARTUP_FILES[shell]
        before = (home / name).read_text(encoding="utf-8") if (home / name).is_file() else ""
        if line not in before.splitlines():
            end = "\n" if before and not before.endswith("\n") else ""
            (home / name).write_text(f"{before}{end}{line}\n", encoding="utf-8")
    return path
