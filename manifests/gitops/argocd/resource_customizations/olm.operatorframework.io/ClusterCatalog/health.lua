-- The health of ClusterExtensions, ClusterCatalogs and ClusterObjectSets: what kstatus reads from the same conditions.
local health = { status = "Progressing", message = "The controller has not seen the object yet" }
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "The object is being deleted"
  return health
end
if obj.status == nil or obj.status.conditions == nil then
  return health
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  health.message = "The controller has not seen the latest change yet"
  return health
end
local ready, stalled = nil, false
for _, condition in ipairs(obj.status.conditions) do
  if condition.type == "Ready" then
    ready = condition
  elseif condition.type == "Stalled" then
    stalled = condition.status == "True"
  end
end
if ready == nil then
  return health
end
health.message = ready.message
if ready.status == "True" then
  health.status = "Healthy"
elseif stalled and (ready.reason == "Paused" or ready.reason == "AwaitingApproval" or ready.reason == "Frozen") then
  health.status = "Suspended"
elseif stalled then
  health.status = "Degraded"
end
return health
