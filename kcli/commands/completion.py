"""`k completion`: scripts with which a shell completes the words of `k`."""

from __future__ import annotations

import click

from kcli.command.command import Manual, Options, command
from kcli.command.options import refuse
from kcli.command.output import print_output

# Each calls `k __complete`, see kcli.shell_completion.completion; its standard error would only
# garble the line that is being typed.

BASH = r"""# Completion of k for bash:  source <(k completion bash)
_k() {
    local line kept before name
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <("${1/#\~/$HOME}" __complete bash "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
    if [[ ${COMPREPLY[0]-} == :files$'\t'* ]]; then
        line=${COMPREPLY[0]#*$'\t'} kept=${line%%$'\t'*}
        line=${line#*$'\t'} before=${line%%$'\t'*} name=${line#*$'\t'}
        COMPREPLY=()
        while IFS= read -r line; do
            line=$before$line
            COMPREPLY+=("${line:kept}")
        done < <(compgen -f -- "$name")
        compopt -o filenames
    elif [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=:] ]]; then
        compopt -o nospace
    fi
}
complete -F _k k
"""

ZSH = r"""#compdef k
# Completion of k for zsh:  source <(k completion zsh)
_k() {
    local line value k=${(Q)words[1]}
    local -a said plain open
    said=(__complete zsh "${(@Q)words[2,CURRENT-1]}" "$PREFIX")
    for line in "${(@f)$(${k/#\~/$HOME} "$said[@]" 2>/dev/null)}"; do
        case $line in
            '') ;;
            :files*)
                compset -P '*[=,]'
                _files
                return ;;
            *)
                value=${line%%$'\t'*}
                line=${value//:/\\:}:${line#*$'\t'}
                if [[ $value == *[=:] ]]; then open+=("$line"); else plain+=("$line"); fi ;;
        esac
    done
    _describe k plain -- open -S ''
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _k "$@"; else compdef _k k; fi
"""

FISH = r"""# Completion of k for fish:  k completion fish | source
function __k_complete
    set -l words (commandline -opc)
    set -l k (string replace -r '^~' $HOME -- $words[1])
    set -e words[1]
    type -q $k; or return
    set -l word (commandline -ct | string trim -l -c '"\'' | string unescape)
    set -l found ($k __complete fish $words "$word" 2>/dev/null)
    if string match -q ':files*' -- "$found[1]"
        set -l said (string split \t -- $found[1])
        for file in (__fish_complete_path $said[4])
            echo $said[3]$file
        end
    else if set -q found[1]
        printf '%s\n' $found
    end
end
complete -c k -f -a '(__k_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}

MANUAL = Manual(
    examples=(
        (
            "k completion bash > ~/.local/share/bash-completion/completions/k",
            "For each new bash, where the package bash-completion is installed.",
        ),
        ("k completion zsh > ~/.zfunc/_k", "For each new zsh, where fpath holds ~/.zfunc."),
        ("k completion fish > ~/.config/fish/completions/k.fish", "For each new fish."),
    ),
    environment=(
        (
            "XDG_CACHE_HOME",
            "Where names from clusters are cached, in its directory k.  Default: ~/.cache.",
        ),
    ),
    differences=("Kafka's scripts have no completion.",),
    see_also=("k-topics", "k-console-producer", "k-console-consumer"),
)


@command(manual=MANUAL)
@click.argument("shell", nargs=-1, metavar="bash|zsh|fish")
def completion(options: Options) -> None:
    """Prints the script that makes a shell complete the command line of k.

    For the current shell: source <(k completion bash) or zsh; k completion fish | source.

    It completes commands, options and their values: file names, settings, and the names in the
    cluster that the command line points to: topics, partitions, brokers, keys of a topic's
    configuration.  Names from a cluster are cached for ten seconds.  If a cluster does not respond
    within a second, its names are left out, without a message.
    """
    if len(options.shell) != 1 or options.shell[0] not in SCRIPTS:
        refuse(f"name the shell: {', '.join(SCRIPTS)}")
    print_output(SCRIPTS[options.shell[0]], end="")
