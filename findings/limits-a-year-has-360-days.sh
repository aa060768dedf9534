#!/usr/bin/env bash
# Python's `limits`, which Flask-Limiter and slowapi count by: `1/month` is 30 days and `1/year` is 360, so that a quota
# "of a year" that was used up on 1 January is back on 27 December. Who bills by the year sells five days too many.
. "$(dirname "$0")/setup"
with_python limits==5.8.0
python - <<'PY'
from datetime import datetime, timedelta
import limits

days = {text: limits.parse(text).get_expiry() / 86400 for text in ("1/month", "1/year")}
back = datetime(2027, 1, 1) + timedelta(days=days["1/year"])
print(days, "used up on 1 January, back on", back.date())
assert days == {"1/month": 30, "1/year": 360} and (back.month, back.day) == (12, 27)
PY
