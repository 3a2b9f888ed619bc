// Processor time of this process, for tests of input that could take quadratic time or worse. Unlike the clock it does
// not depend on what else the machine does.
/** Starts measuring; the function tells the milliseconds used since. */
export function startProcessorTime(): () => number {
  const start = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(start);
    return (user + system) / 1_000;
  };
}
