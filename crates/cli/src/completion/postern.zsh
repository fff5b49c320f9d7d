#compdef postern
# Completion of postern for zsh. The program itself finds the candidates.

_postern() {
    local program=${(Q)words[1]} line found
    local -i directive=0
    local -a entries options
    whence -p -- "$program" >/dev/null || program=postern
    found=$("$program" __complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null) || return 1
    for line in "${(@f)found}"; do
        case $line in
            '') ;;
            :*) directive=${line#:} ;;
            # A colon separates a candidate from its description.
            *$'\t'*) entries+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
            *) entries+=("${line//:/\\:}") ;;
        esac
    done
    if (( ${#entries} )); then
        if (( directive & 2 )); then options=(-S '') fi
        _describe -V -t candidates 'postern' entries "${options[@]}"
    elif (( ! (directive & 4) )); then
        compset -P '--*='
        _files
    fi
}

# The file is a function of fpath, or it is sourced.
if [[ ${funcstack[1]} == _postern ]]; then
    _postern "$@"
else
    compdef _postern postern
fi
