export class LogTab {
  constructor() {}
  show() {}
}
