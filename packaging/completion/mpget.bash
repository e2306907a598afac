# Written by packaging/completion/write.py from the command line's parser; do not edit.
_mpget() {
    local word place='' offers=''
    case "${COMP_WORDS[COMP_CWORD-1]}" in
        --max-paths|--metalink|--min-weight|--output|--path|--slot|-o) compopt -o default; COMPREPLY=(); return ;;
    esac
    case "$place" in
        "") offers='--help --version --output --path --metalink --max-paths --min-weight --slot --json --resume' ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$offers" -- "${COMP_WORDS[COMP_CWORD]}")
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _mpget mpget
