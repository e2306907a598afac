{% autoescape off %}{% if vpn_units %}sudo systemctl enable --now {{ vpn_units|join:" " }}
{% endif %}{% if scion_units %}sudo systemctl enable --now {{ scion_units|join:" " }}
{% endif %}
{% endautoescape %}