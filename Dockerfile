# The Coordination Service (web, worker, beat and migrate all run this image). The agent is not in it: it belongs on APs.
# Another base (packaging/lab makes one from Debian packages) must have python 3.11 and pip.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
WORKDIR /srv/scionlab
COPY requirements/web.lock requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/web.lock && useradd --system --home-dir /var/lib/scionlab --create-home scionlab
COPY bandwidth_config.py config_tar.py manage.py ./
COPY contract contract
COPY scionlab scionlab
COPY station station
COPY templates templates
# Each image has the static files of its version, and the list of their names.
ENV SCIONLAB_VAR=/var/lib/scionlab STATIC_ROOT=/srv/scionlab/collected PYTHONUNBUFFERED=1
RUN SCIONLAB_VAR=/tmp/collect DJANGO_SETTINGS_MODULE=scionlab.settings.collect python manage.py collectstatic --no-input && rm -r /tmp/collect && \
    install --directory --owner scionlab /srv/nginx/static
USER scionlab
EXPOSE 8000
