# Written by packaging/completion/write.py from the command line's parser; do not edit.
_scionlab_bw() {
    local word place='' offers=''
    case "${COMP_WORDS[COMP_CWORD-1]}" in
        --at|--bind|--cycles|--email|--end|--for|--from|--half-period|--high|--id|--last|--limit|--limits|--low|--set|--start|--state|--step|--steps|--test|--timeout|--to|--traceroute|--until) compopt -o default; COMPREPLY=(); return ;;
    esac
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$place $word" in
            " login"|" logout"|" ases"|" rename"|" links"|" show"|" set"|" set-all"|" profile"|" profile constant"|" profile outage"|" profile stair"|" profile square"|" timed"|" cancel"|" usage"|" path"|" paths"|" history"|" wait"|" watch"|" watch-load"|" test") place="$place $word" ;;
        esac
    done
    case "$place" in
        "") offers='--help --version login logout ases rename links show set set-all profile timed cancel usage path paths history wait watch watch-load test' ;;
        " login") offers='--help --email --token' ;;
        " logout") offers='--help' ;;
        " ases") offers='--help --json' ;;
        " rename") offers='--help --json' ;;
        " links") offers='--help --json --state' ;;
        " show") offers='--help --json' ;;
        " set") offers='--help --json --to --from --active --inactive --for --until --at' ;;
        " set-all") offers='--help --json' ;;
        " profile") offers='--help constant outage stair square' ;;
        " profile constant") offers='--help --json --limits --for --until --at' ;;
        " profile outage") offers='--help --json --for --until --at' ;;
        " profile stair") offers='--help --json --start --end --at --steps --step' ;;
        " profile square") offers='--help --json --low --high --at --half-period --cycles' ;;
        " timed") offers='--help --json --all' ;;
        " cancel") offers='--help --json --id --all' ;;
        " usage") offers='--help --json --last --step --csv' ;;
        " path") offers='--help --json --traceroute --test --for' ;;
        " paths") offers='--help --json' ;;
        " history") offers='--help --json --limit' ;;
        " wait") offers='--help --json --timeout' ;;
        " watch") offers='--help --json --once' ;;
        " watch-load") offers='--help --json --for --at' ;;
        " test") offers='--help --json --set --at --id --bind --all-links' ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$offers" -- "${COMP_WORDS[COMP_CWORD]}")
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _scionlab_bw scionlab-bw
