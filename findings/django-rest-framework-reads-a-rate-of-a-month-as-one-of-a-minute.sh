#!/usr/bin/env bash
# Django REST framework looks at the first letter of a throttle's period, and knows `s`, `m`, `h` and `d`. A rate of
# `1000/month` is 1000 a minute, some 43 000 times as much as is written, without a warning. `1000/week` fails at once.
# Nobody who sells a quota of a month by it has one.
. "$(dirname "$0")/setup"
with_python djangorestframework==3.18.3 django==5.2.19
python - <<'PY'
from django.conf import settings
settings.configure(CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}})
from rest_framework.throttling import SimpleRateThrottle

class OfOneCaller(SimpleRateThrottle):
    now = 0.0
    timer = lambda self: type(self).now

    def get_cache_key(self, request, view):
        return "alice"

class Monthly(OfOneCaller):
    rate = "2/month"

def admitted(at):
    OfOneCaller.now = at
    return Monthly().allow_request(None, None)

answers = [admitted(at) for at in (0, 1, 2, 61, 62, 122)]
print("two a month, asked at 0, 1, 2, 61, 62 and 122 s:", answers)
assert answers == [True, True, False, True, True, True]
try:
    OfOneCaller.parse_rate(Monthly(), "2/week")
    raise SystemExit("a week is known")
except KeyError as error:
    print("two a week: KeyError", error)
PY
