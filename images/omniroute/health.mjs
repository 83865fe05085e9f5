// Exit with 0 when OmniRoute answers: for an engine's health check (there is no curl in this image).
const url = `http://127.0.0.1:${process.env.PORT ?? 20128}/api/monitoring/health`;
const answer = await fetch(url, { signal: AbortSignal.timeout(2500) }).catch(() => undefined);
process.exit(answer?.ok ? 0 : 1);
