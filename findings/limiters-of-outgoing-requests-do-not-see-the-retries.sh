#!/usr/bin/env bash
# A limiter in front of a client counts calls, and the client below it repeats them. requests-ratelimiter, at one request
# a second, sends four at once with urllib3's `Retry(3)`. LangChain's limiter, at one in two seconds, sends three in
# about two seconds, by the retries of OpenAI's SDK. So the quota is exceeded just as the service refuses, and each
# refused request may count there. Retries belong above the limiter, and those below have to be switched off.
. "$(dirname "$0")/setup"
with_python requests-ratelimiter==0.10.0 requests==2.34.2 langchain-openai==1.7.4 langchain-core==1.8.3 openai==3.57.0
with_refusals
cat >try.py <<'PY'
import requests
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_openai import ChatOpenAI
from refusals import start
from requests_ratelimiter import LimiterAdapter
from urllib3 import Retry

url, times = start({})

def seen(call):
    times.clear()
    try:
        call()
    except Exception as error:
        print(type(error).__name__, end=": ")
    return [round(it - times[0], 1) for it in times]

def by_requests(retries):
    session = requests.Session()
    session.mount("http://", LimiterAdapter(per_second=1, burst=1, limit_statuses=[], max_retries=retries))
    return lambda: [session.get(url) for _ in range(2)]

def by_langchain(retries):
    limiter = InMemoryRateLimiter(requests_per_second=0.5, check_every_n_seconds=0.05)
    model = ChatOpenAI(model="m", api_key="k", base_url=url, rate_limiter=limiter, max_retries=retries)
    return lambda: model.invoke("why")

without = seen(by_requests(0))
print("requests-ratelimiter, two calls at 1/s:", without)
assert len(without) == 2 and without[1] >= 0.8, without
refused = seen(by_requests(Retry(3, status_forcelist=[429])))
print("requests-ratelimiter, one call with Retry(3):", refused)
assert len(refused) == 4 and refused[3] < 0.8, refused
refused = seen(by_langchain(2))
print("LangChain, one call at 0.5/s:", refused)
assert len(refused) == 3 and refused[1] < 1.5 and refused[2] < 3.5, refused
PY
python try.py
