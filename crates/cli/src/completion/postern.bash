# Completion of postern for bash. The program itself finds the candidates.

_postern() {
    local program=$1 typed=$2 found candidate directive=0
    type -P "$program" >/dev/null || program=postern
    COMPREPLY=()
    found=$("$program" __complete --line "${COMP_LINE:0:COMP_POINT}" --replaced "$typed" 2>/dev/null) || return 0
    while IFS= read -r candidate; do
        case $candidate in
            '') ;;
            :*) directive=${candidate#:} ;;
            *) COMPREPLY+=("${candidate%%$'\t'*}") ;;
        esac
    done <<<"$found"
    # bash 3 has no compopt.
    if ((directive & 2)); then compopt -o nospace 2>/dev/null; fi
    if ((directive & 4)); then compopt +o default 2>/dev/null; fi
    return 0
}

complete -o default -F _postern postern
