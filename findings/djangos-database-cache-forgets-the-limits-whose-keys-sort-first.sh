#!/usr/bin/env bash
# Django's cache in a database has room for 300 entries unless told otherwise, and then drops a third: neither the
# oldest nor those that end first, but the first by their names. Django REST framework counts calls in that cache, under
# `throttle_anon_` and the address. Of two clients that call all the time, the one at 10.0.0.1 is forgotten again and
# again, and gets 45 calls of the 5 in a day. The one at 90.0.0.1 gets 5. The cache in memory keeps both.
. "$(dirname "$0")/setup"
with_python django==5.2.19 djangorestframework==3.18.3
cat >service.py <<'PY'
import sys
import django
from django.conf import settings
from django.urls import path

BACKENDS = {
    "memory": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "database": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "counts"},
}
settings.configure(
    ALLOWED_HOSTS=["testserver"],
    CACHES={"default": BACKENDS[sys.argv[1]]},
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["rest_framework"],
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "DEFAULT_PERMISSION_CLASSES": [],
        "DEFAULT_THROTTLE_CLASSES": ["rest_framework.throttling.AnonRateThrottle"],
        "DEFAULT_THROTTLE_RATES": {"anon": "5/day"},
        "UNAUTHENTICATED_USER": None,
    },
    ROOT_URLCONF=__name__,
    SECRET_KEY="none",
)
django.setup()

from django.core.management import call_command
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.test import APIClient

urlpatterns = [path("", api_view()(lambda request: Response("hello")))]
if sys.argv[1] == "database":
    call_command("createcachetable")

client = APIClient()
admitted = {"10.0.0.1": 0, "90.0.0.1": 0}
for other in range(1000):
    client.get("/", REMOTE_ADDR=f"50.0.{other // 250}.{other % 250}")
    for address in admitted:
        admitted[address] += client.get("/", REMOTE_ADDR=address).status_code == 200
print(f"cache in {sys.argv[1]}, five calls a day, 1000 other clients:", admitted)
assert list(admitted.values()) == ([5, 5] if sys.argv[1] == "memory" else [45, 5])
PY
for cache in memory database; do
  python service.py $cache 2>/dev/null
done
