# Written by packaging/completion/write.py from the command line's parser; do not edit.
_scionlab_bw_agent() {
    local word place='' offers=''
    case "${COMP_WORDS[COMP_CWORD-1]}" in
        --config|--confirm-within|--credentials|--for) compopt -o default; COMPREPLY=(); return ;;
    esac
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$place $word" in
            " run"|" once"|" show"|" usage"|" status"|" watch"|" tell"|" enrol"|" accept"|" accept-older"|" routes"|" routes plan"|" routes apply"|" routes confirm"|" routes rollback"|" routes remove"|" routes show"|" routes verify") place="$place $word" ;;
        esac
    done
    case "$place" in
        "") offers='--help --version --config run once show usage status watch tell enrol accept accept-older routes' ;;
        " run") offers='--help --config' ;;
        " once") offers='--help --config' ;;
        " show") offers='--help --config --json --verbose' ;;
        " usage") offers='--help --config --json' ;;
        " status") offers='--help --config --json' ;;
        " watch") offers='--help --config' ;;
        " tell") offers='--help --config' ;;
        " enrol") offers='--help --config --replace --credentials' ;;
        " accept") offers='--help --config' ;;
        " accept-older") offers='--help --config' ;;
        " routes") offers='--help --config plan apply confirm rollback remove show verify' ;;
        " routes plan") offers='--help --config --json' ;;
        " routes apply") offers='--help --config --json --confirm-within --by-hand --boot' ;;
        " routes confirm") offers='--help --config' ;;
        " routes rollback") offers='--help --config' ;;
        " routes remove") offers='--help --config --json --confirm-within --by-hand' ;;
        " routes show") offers='--help --config --json' ;;
        " routes verify") offers='--help --config --json --for' ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$offers" -- "${COMP_WORDS[COMP_CWORD]}")
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _scionlab_bw_agent scionlab-bw-agent
