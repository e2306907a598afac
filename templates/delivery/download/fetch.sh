{% autoescape off %}sudo python3 -c '
import json, os
path = "/etc/scion/scionlab-config.json"
found = json.load(open(path)) if os.path.exists(path) else {}
names = ("host_id", "url", "version", "files", "systemd_units")
print(json.dumps({name: found[name] for name in names if name in found}))
' | curl -sS --fail-with-body -u {{ uid }}:{{ secret }} --data-binary @- \
    {{ site_url }}/api/v4/host/{{ uid }}/installed &&
sudo scionlab-config --host-id={{ uid }} --host-secret={{ secret }} --url={{ site_url }}
{% endautoescape %}