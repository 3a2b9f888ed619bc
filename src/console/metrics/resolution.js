// The lengths of buckets of metrics.

/** @type {Readonly<Record<string, number>>} */
export const resolutionSeconds = {
  MINUTELY: 60,
  FIVE_MINUTELY: 300,
  TEN_MINUTELY: 600,
  FIFTEEN_MINUTELY: 900,
  HOURLY: 3_600,
  DAILY: 86_400,
};
/** @type {Readonly<Record<string, string>>} */
export const resolutionNames = {
  AUTO: "Automatic",
  MINUTELY: "1 minute",
  FIVE_MINUTELY: "5 minutes",
  TEN_MINUTELY: "10 minutes",
  FIFTEEN_MINUTELY: "15 minutes",
  HOURLY: "1 hour",
  DAILY: "1 day",
};
