# Written by packaging/completion/write.py from the command line's parser; do not edit.
_scionlab_bw_limiter() {
    local word place='' offers=''
    case "${COMP_WORDS[COMP_CWORD-1]}" in
        --config|--link-info|--reason) compopt -o default; COMPREPLY=(); return ;;
    esac
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$place $word" in
            " run"|" plan"|" once"|" show"|" reset"|" selftest") place="$place $word" ;;
        esac
    done
    case "$place" in
        "") offers='--help --version --config run plan once show reset selftest' ;;
        " run") offers='--help --config' ;;
        " plan") offers='--help --config --link-info --json --verbose' ;;
        " once") offers='--help --config --link-info --json --verbose' ;;
        " show") offers='--help --config --json --verbose' ;;
        " reset") offers='--help --config --verbose --reason' ;;
        " selftest") offers='--help --config --json' ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$offers" -- "${COMP_WORDS[COMP_CWORD]}")
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _scionlab_bw_limiter scionlab-bw-limiter
