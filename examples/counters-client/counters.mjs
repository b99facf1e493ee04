/*
 * counters.mjs - a client of the counters API: fetch and nothing else. Runs in
 * browsers and in Node 18 or later.
 *
 *   const counters = new Counters({ baseUrl, token, tenantId });
 *   await counters.trackPageView();
 *   const { allowed, used } = await counters.checkRateLimit(100);
 *
 * Values are BigInt: they may be as large as 2^63 - 1, sums even larger, and a
 * Number is exact only to 2^53. What goes wrong is a CounterError.
 */

export const Granularity = {
  PERPETUAL: 0,
  MINUTE: 60,
  HOUR: 3600,
  DAY: 86400,
};

/*
 * status: of the answer, 0 when none came. outcome "unknown": the write may
 * have been applied or not; repeat it only with its Idempotency-Key.
 */
export class CounterError extends Error {
  constructor(status, message, { outcome, retryAfter = 0 } = {}) {
    super(message);
    this.name = 'CounterError';
    this.status = status;
    this.outcome = outcome;
    this.retryAfter = retryAfter;
  }
}

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Counters {
  #base;
  #token;
  #sleep;

  /* sleep(milliseconds): for tests. */
  constructor({ baseUrl = '', token, tenantId, sleep = wait }) {
    this.#base = `${baseUrl}/api/counters/${encodeURIComponent(tenantId)}`;
    this.#token = token;
    this.#sleep = sleep;
  }

  /*
   * Writes: { name, durationSeconds, timestamp, amount, expiresAt,
   * idempotencyKey }; a set has targetValue in the place of amount. Each gives
   * { net, added, subbed } right after it.
   */
  increment(write) {
    return this.#write('POST', 'increment', write);
  }

  decrement(write) {
    return this.#write('POST', 'decrement', write);
  }

  incrementSync(write) {
    return this.#write('POST', 'incrementSync', write);
  }

  decrementSync(write) {
    return this.#write('POST', 'decrementSync', write);
  }

  set(write) {
    return this.#write('PUT', 'set', write);
  }

  /* undefined: there is no such bucket. */
  async get({ name, durationSeconds, timestamp = new Date() }) {
    try {
      return await this.#read('get', name, {
        durationSeconds,
        timestamp: timeText(timestamp),
      });
    } catch (error) {
      if (error.status === 404) {
        return undefined;
      }
      throw error;
    }
  }

  /* Both ends are within. */
  sumRange({ name, durationSeconds, startTime, endTime }) {
    return this.#read('sumRange', name, {
      durationSeconds,
      startTime: timeText(startTime),
      endTime: timeText(endTime),
    });
  }

  /*
   * Again after a while, twice as long each time, when nothing has happened
   * (429, 503). Whether something has happened may also be unknown (504, no
   * answer): again only with an idempotencyKey, by which it counts once.
   */
  async incrementWithRetry(write, maxRetries = 3) {
    for (let i = 0; ; i++) {
      try {
        return await this.increment(write);
      } catch (error) {
        const isSafe = error.status === 429 || error.status === 503 ||
          ((error.status === 504 || error.status === 0) &&
            write.idempotencyKey !== undefined);
        if (!isSafe || i + 1 >= maxRetries) {
          throw error;
        }
        await this.#sleep(Math.max(2 ** i, error.retryAfter) * 1000);
      }
    }
  }

  /* Page views of this hour. */
  trackPageView(timestamp = new Date()) {
    return this.increment({
      name: 'page_views',
      durationSeconds: Granularity.HOUR,
      timestamp,
      amount: 1,
    });
  }

  /* Calls in this minute: a look, others may count meanwhile. */
  async checkRateLimit(limit = 100, timestamp = new Date()) {
    const bucket = await this.get({
      name: 'api_calls',
      durationSeconds: Granularity.MINUTE,
      timestamp,
    });
    const used = bucket === undefined ? 0n : bucket.net;
    return { allowed: used < BigInt(limit), used };
  }

  /* Of all days from the one to the other. */
  async getDailyActiveUsers(startDate, endDate) {
    const { net } = await this.sumRange({
      name: 'daily_active_users',
      durationSeconds: Granularity.DAY,
      startTime: startDate,
      endTime: endDate,
    });
    return net;
  }

  /* Buckets of 30 days; kept for 90. */
  setMonthlyQuota(resource, quota, now = new Date()) {
    const firstOfMonth = new Date(
      Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1));
    return this.set({
      name: `${resource}_quota`,
      durationSeconds: 30 * Granularity.DAY,
      timestamp: firstOfMonth,
      targetValue: quota,
      expiresAt: new Date(now.getTime() + 90 * Granularity.DAY * 1000),
    });
  }

  #write(method, endpoint, { name, idempotencyKey, ...members }) {
    const headers = { 'Content-Type': 'application/json' };
    if (idempotencyKey !== undefined) {
      headers['Idempotency-Key'] = idempotencyKey;
    }
    return this.#ask(`${encodeURIComponent(name)}/${endpoint}`, {
      method,
      headers,
      body: bodyText(members),
    });
  }

  #read(endpoint, name, query) {
    return this.#ask(
      `${encodeURIComponent(name)}/${endpoint}?${new URLSearchParams(query)}`,
      { headers: {} });
  }

  async #ask(path, options) {
    options.headers.Authorization = `Bearer ${this.#token}`;
    let response;
    let body;
    try {
      response = await fetch(`${this.#base}/${path}`, options);
      body = await response.text();
    } catch (error) {
      throw new CounterError(0, `no answer: ${error.message}`,
        { outcome: 'unknown' });
    }
    if (!response.ok) {
      throw errorOf(response, body);
    }
    const { net, added, subbed } = JSON.parse(body);
    return { net: BigInt(net), added: BigInt(added), subbed: BigInt(subbed) };
  }
}

function errorOf(response, body) {
  let told = {};
  try {
    told = JSON.parse(body);
  } catch {
    told.error = response.statusText;
  }
  return new CounterError(response.status, told.error, {
    outcome: told.outcome,
    retryAfter: Number(response.headers.get('Retry-After') ?? 0),
  });
}

function timeText(time) {
  return time instanceof Date ? time.toISOString() : String(time);
}

/* JSON.stringify knows no BigInt, and a Number has lost digits before it. */
function integerText(name, value) {
  if (typeof value !== 'bigint' && !Number.isSafeInteger(value)) {
    throw new RangeError(`${name} must be a BigInt or a safe integer`);
  }
  return value.toString();
}

function bodyText({ durationSeconds, timestamp = new Date(), amount,
  targetValue, expiresAt }) {
  const members = [
    `"durationSeconds":${integerText('durationSeconds', durationSeconds)}`,
    `"timestamp":${JSON.stringify(timeText(timestamp))}`,
  ];
  if (amount !== undefined) {
    members.push(`"amount":${integerText('amount', amount)}`);
  }
  if (targetValue !== undefined) {
    members.push(`"targetValue":"${integerText('targetValue', targetValue)}"`);
  }
  if (expiresAt !== undefined) {
    members.push(`"expiresAt":${JSON.stringify(timeText(expiresAt))}`);
  }
  return `{${members.join(',')}}`;
}
