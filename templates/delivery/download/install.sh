{% autoescape off %}for file in $(find etc/scion -type f); do
    case "$file" in *.key) mode=600 ;; *) mode=644 ;; esac
    sudo install -D -C -o scion -g scion -m "$mode" --backup=numbered "$file" "/$file"
done
{% if has_certs %}sudo chown scion:scion /etc/scion/certs  # SCION stores fetched TRCs there
{% endif %}{% if has_vpn_files %}for file in $(find etc/openvpn -type f); do
    case "$file" in *.conf) mode=600 ;; *) mode=644 ;; esac
    sudo install -D -C -m "$mode" --backup=numbered "$file" "/$file"
done
{% endif %}
{% endautoescape %}