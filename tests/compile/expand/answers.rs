#[rate_limit(threshold = 1, key = user, skip = user.is_admin(), decision = quota, otherwise = |error| told(user, error).await)]
async fn told_when_refused(user: User) -> Page {
    Page::fresh(user, quota.remaining())
}

#[rate_limit(threshold = plan.calls, decision = quota, soft)]
async fn runs_anyway(plan: Plan) -> bool {
    quota.is_ok()
}

#[rate_limit(threshold = 1, otherwise = ())]
async fn does_nothing() {}
