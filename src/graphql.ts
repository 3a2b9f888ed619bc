// The schema behind /graphql and the source that .meshrc.yaml names. It has no operations yet: the fields will be built
// from `operations/`.
import { buildSchema } from "graphql";

export const schema = buildSchema(`
  "The monitoring data of the sites that the token may see."
  type Query {
    "The service's name."
    readout: String
  }
`);
